"""The version of Breakwater, as pyproject.toml says it too."""

VERSION = "0.1.0"
