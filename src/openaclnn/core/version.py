"""The version, where the packaging reads it and everything above may."""

__version__ = "0.1.0"
