"""The machine: wafers, their topology and presets. Import from its modules."""
