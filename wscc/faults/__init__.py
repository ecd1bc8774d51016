"""Studies of a program on damaged wafers: patterns of damage, the share that compiles, and its throughput."""
