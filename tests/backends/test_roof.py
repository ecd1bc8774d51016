"""The table of roofs measures what `wscc simulate` says, and its cases are programs of the language."""

from __future__ import annotations

import pytest

from tests.bench.roof import measure, overrides
from tests.bench.roof_cases import CASES, Case
from wscc.driver.compile import load, program_of
from wscc.driver.simulate import simulate
from wscc.files import read_source
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve

TINY = Case("tiny", "samples/gpt-tiny.wsl", ("wafer.die.sram=400 kB",), 16, 0.5, {})
STRATEGY = "dp=2,tp=2,tatp=2 microbatch=4"


def test_a_row_has_the_figures_of_simulate() -> None:
    measured = measure(TINY, STRATEGY)
    artifact, _ = program_of(load(TINY.sample, overrides(TINY, STRATEGY)))
    assert measured.figures == simulate(artifact).figures()
    exposed = sum(measured.figures.time["exposed"].values())
    # One die stands for all of its cluster, and HBM is counted without what messages take of it.
    assert sum(measured.messages.values()) == pytest.approx(exposed, rel=0.05)
    assert 0 < sum(measured.hbm.values()) <= measured.figures.time["hbm"]


def test_every_case_is_a_program_with_enough_micro_batches() -> None:
    """A pipeline of few would mostly fill and drain."""
    files = {case.sample: parse(read_source(case.sample)) for case in CASES}
    for case in CASES:
        for strategy in (s for strategies in case.strategies.values() for s in strategies):
            config = resolve(files[case.sample], overrides(case, strategy)).config
            assert config.calls >= 4 * config.degree("pp"), (case.name, strategy)
