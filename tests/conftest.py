"""Settings of all property tests: the suite draws the same examples every time, `make fuzz` draws new ones."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("suite")
