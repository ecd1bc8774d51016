"""Plans of single collectives as streams, run by the interpreter."""
