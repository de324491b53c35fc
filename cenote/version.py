"""The version of this package, without importing the rest of it."""

__version__ = "0.1.0"
