"""The artifact of a compiled program: its files, read, written and hashed."""
