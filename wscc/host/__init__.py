"""The host's part of a run: initial weights, batches, and the comparison of two runs."""
