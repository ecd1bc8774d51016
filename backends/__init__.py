"""Backends take a planned module or an artifact: emission, interpreter, simulator, verifier."""
