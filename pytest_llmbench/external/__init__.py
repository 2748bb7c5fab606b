"""Data of other people that level B measures with: fetched on demand, checked byte by byte, not in the package."""
