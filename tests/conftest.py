"""Settings of the suite: property tests draw the same examples every time, `make fuzz` draws new ones."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None, print_blob=True, max_examples=25)
settings.load_profile("suite")

# Modules are trees of millions of immutable objects and have no cycles, and machines have none either: looking for some
# again and again is an eighth of the suite's time.
gc.disable()


@pytest.fixture(scope="module", autouse=True)
def _reports_without_bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    """What links must carry at least takes up to half the time of a small program. Files of tests that look at it are
    marked `bounds`."""
    if request.node.get_closest_marker("bounds"):
        yield
        return
    # Not imported above: the process that hands out tests runs none.
    from wscc.analysis.link_loads import phase_loads

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "wscc.driver.compile.phase_loads", lambda routed, *, bounds: phase_loads(routed, bounds=False)
        )
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Pytest collects five times at its end; what the tests made is not looked at."""
    gc.freeze()
