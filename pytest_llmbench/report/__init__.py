"""Records → report. Reads records only."""
