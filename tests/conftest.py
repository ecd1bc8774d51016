"""Settings of the suite: property tests draw the same examples every time, `make fuzz` draws new ones."""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("suite")

# Modules are trees of millions of immutable objects and have no cycles: looking for some every 700 objects is an
# eighth of the suite's time.
gc.set_threshold(50_000, 20, 50)
