"""Facts about memory: live ranges, packing, array layout, the cost of accesses to HBM."""
