"""The interpreter: dies with a byte arena each, which run the streams with real numbers and exchange messages."""
