"""Kernels: the NumPy function of each opcode, which writes into the arrays that it is given."""
