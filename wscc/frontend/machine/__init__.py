"""The sections of machines, resolved: wafers and systems of them. Import from its modules."""
