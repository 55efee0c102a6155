"""The version of the library, for modules below the package's own."""

__all__ = ["__version__"]

__version__ = "0.1.0"
