"""The version of Breakwater, in its one place: the package reads it too."""

VERSION = "0.2.0"
