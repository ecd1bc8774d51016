"""The Python API, of which `wscc` has the names; they are gathered in `names`."""
