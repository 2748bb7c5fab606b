"""Project defaults only."""

pytest_plugins = ["pytester"]
