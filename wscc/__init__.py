"""wscc: a compiler toolchain for training transformers on wafer-scale chips."""

__version__ = "0.1.0"
