"""`cost`: the rates of a wafer, in doubles and exact, against formulas written out; nothing else divides by them."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from tests.support.paths import ROOT
from wscc.analysis.cost import DieRates, Rates
from wscc.machine.links import STORE_AND_FORWARD
from wscc.machine.wafer import Die, Link, Wafer

WAFER = Wafer("w", 2, 2, Die(peak=3 * 10**12, hbm_bandwidth=7 * 10**9, tile=16), Link(11 * 10**9, 3e-9, 64))


def test_estimates_are_the_doubles_nearest_to_exact_rates() -> None:
    doubles, exact = Rates.of(WAFER), Rates.exact(WAFER)
    assert exact.die.compute(10**9) == Fraction(1, 3000)
    assert exact.die.hbm(21) == Fraction(3, 10**9)
    assert exact.link.busy(121) == Fraction(11, 10**9)
    assert exact.link.latency == Fraction(3, 10**9)
    for part, rate in (("die", "compute"), ("die", "hbm"), ("link", "busy")):
        estimate, precise = [getattr(getattr(rates, part), rate) for rates in (doubles, exact)]
        assert estimate(12345) == float(precise(12345)), rate


def test_a_message_takes_whole_flits_and_holds_its_link_as_its_model_says() -> None:
    link = Rates.exact(WAFER).link
    assert (link.times().hold(65), link.times().span(65)) == (128, 128 + 33)
    assert link.times(STORE_AND_FORWARD).hold(65) == 128 + 33
    assert link.capacity(link.busy(128)) == 128


def test_products_take_whole_tiles() -> None:
    assert Rates.of(WAFER).die.efficiency((16, 32, 48)) == 1
    assert Rates.of(WAFER).die.efficiency((17, 16, 4)) == pytest.approx(17 / 32 * 4 / 16)


def test_a_die_without_hbm_takes_no_time_for_it() -> None:
    for rates in (DieRates.of(Die(hbm=0, hbm_bandwidth=0)), DieRates.exact(Die(hbm=0, hbm_bandwidth=0))):
        assert not rates.has_hbm
        assert rates.hbm(10) == 0


# Modules that may read a peak or a bandwidth: machines and their text, the record of rates, and the options of
# `wscc collective`, whose link belongs to no wafer.
MAY_READ_RATES = (
    "wscc/machine/",
    "wscc/frontend/machine/wafers.py",
    "wscc/analysis/cost.py",
    "wscc/cli/link_option.py",
)
RATE = re.compile(r"\.hbm_bandwidth\b|\b(?<!rates\.)(?:die|link)\.(?:peak|bandwidth|latency)\b")


def test_nothing_but_the_record_takes_rates_of_a_machine() -> None:
    for path in sorted(p for folder in ("wscc", "passes", "backends") for p in (ROOT / folder).rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(MAY_READ_RATES):
            assert not RATE.search(path.read_text()), path


@pytest.mark.parametrize("text", ["n / wafer.die.peak", "n / d.hbm_bandwidth", "link.latency + n"])
def test_a_rate_of_a_machine_is_noticed(text: str) -> None:
    assert RATE.search(text)
    assert not RATE.search("rates.link.latency + rates.die.compute(n)")
