"""Benchmarks: `python -m tests.bench [--quick]` prints what is measured as a table, and asserts nothing."""
