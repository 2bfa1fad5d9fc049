"""The version, written once: the package metadata and the build read it from here."""

__version__ = "0.1.0"
