"""Prices of the layout search: they follow the program's wafer, and those of another wafer give a slower step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.models import Shape, gpt, llama
from wscc.driver.compile import program_of
from wscc.driver.simulate import simulate
from wscc.ir.module import Module
from wscc.machine.presets import preset
from wscc.machine.wafer import Die, Link, Wafer
from wscc.passes.partition.prices import Prices


def test_prices_are_ratios_of_the_rates_of_the_wafer() -> None:
    assert Prices.of(preset("temp-4x8"), 2) == Prices(flop=1 / 900, access=4.0)
    assert Prices.of(preset("temp-4x8"), 4) == Prices(flop=1 / 1800, access=4.0)
    assert Prices.of(preset("temp-4x8-shared"), 2) == Prices(flop=1 / 3600, access=1.0)
    slow = Wafer("slow", 2, 2, Die(), Link(bandwidth=10**9))
    assert Prices.of(slow, 2).access == Prices.of(slow, 2).replica, "a replica takes memory all the same"
    assert Prices.of(preset("wse2"), 2).access == Prices.of(preset("wse2"), 2).replica, (
        "as it does without HBM"
    )


@pytest.mark.parametrize(
    ("model", "wafer"),
    [
        (gpt, Wafer("slow links", 2, 4, Die(), Link(bandwidth=10**10))),
        (llama, Wafer("no HBM", 2, 4, Die(hbm=0, hbm_bandwidth=0))),
    ],
    ids=["slow links", "no HBM"],
)
def test_a_step_is_shorter_at_the_prices_of_its_own_wafer(
    model: Callable[..., Module], wafer: Wafer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both, moving an element costs more than accessing it, the opposite of `temp-4x8`."""
    own = Prices.of(wafer, 4)
    other = Prices.of(preset("temp-4x8"), 4)
    seconds = {}
    for prices in (own, other):
        monkeypatch.setattr(Prices, "of", lambda *_, prices=prices: prices)
        program, _ = program_of(model({"dp": 2, "tp": 2}, Shape(), wafer=wafer))
        seconds[prices] = simulate(program).figures().step_seconds
    assert seconds[own] < 0.95 * seconds[other]
