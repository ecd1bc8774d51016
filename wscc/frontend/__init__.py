"""The language front end: text to syntax tree to resolved description to the graph level of the IR."""
