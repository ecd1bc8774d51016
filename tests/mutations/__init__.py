"""Mistakes planted on purpose, level by level, and the machinery that says which check catches each."""
