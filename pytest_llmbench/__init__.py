"""pytest-llmbench: a pytest plugin that measures local language models."""

__version__ = "1.0.0"
