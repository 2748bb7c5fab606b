"""The run folder: atomic writes, loading, fingerprints."""
