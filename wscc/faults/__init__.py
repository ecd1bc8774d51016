"""What becomes of a program on damaged wafers: patterns of damage, whether it still compiles, how fast it stays."""
