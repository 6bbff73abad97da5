"""Pack variable-length documents into fixed-length training sequences."""

__version__ = "0.1.0"
