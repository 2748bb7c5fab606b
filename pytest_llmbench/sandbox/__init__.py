"""Confinement of everything a model wrote, and calls into it from outside."""
