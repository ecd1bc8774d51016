"""The intermediate representation: types, ops, modules, fabric and program levels, and their text."""
