"""Search among intervals and strided regions for those that meet."""
