"""Random headers of generated modules: names, numbers, training sections, machines.

Modules are drawn from a seed and a size, not choice by choice: that is ten times faster, and a failing example still
shrinks by its size.
"""

from __future__ import annotations

from collections.abc import Container
from math import prod
from random import Random
from typing import Any, Final, TypeVar

from wscc.diagnostics.limits import Limits, limits_of
from wscc.ir.module import Level, Module
from wscc.ir.train import LrSchedule, Optimizer, Train
from wscc.ir.verify.attrs import wrong_number
from wscc.machine.wafer import Circuits, Die, Link, Wafer, dead_links

# Names that must be quoted, or that look like words of the grammar.
_ODD_NAMES: Final = (
    "", "a b", 'say "x"', "back\\slash", "true", "nan", "send", "buffer", "é", "%x", "1", "-", "a-b", ";",
    "\n", "to", "in", "of", "write", "axes", "x=1", "f32", "<1>", "\x00", "\ud800", "where", "_", "a/b.c",
)  # fmt: skip
_ODD_FLOATS: Final = (
    0.0,
    -0.0,
    1.0,
    0.1,
    1e-300,
    5e-324,
    1e22,
    -1.5e-7,
    1.7976931348623157e308,
    float("inf"),
)


T = TypeVar("T")


class Dice(Random):
    """A random generator of the names and numbers in modules."""

    def coin(self) -> bool:
        return self.random() < 0.5

    def name(self, taken: Container[str] = ()) -> str:
        """A name, mostly such as programs have, that is not in `taken`."""
        while True:
            odd = self.random() < 0.15
            name = self.choice(_ODD_NAMES) if odd else "".join(self.choices("abcdxyz", k=self.randint(1, 3)))
            if not odd and self.random() < 0.3:
                name += f".{self.randint(0, 99)}"
            if name not in taken:
                return name

    def number(self) -> float:
        """Any float but NaN, which is not equal to itself."""
        if self.coin():
            return self.choice(_ODD_FLOATS) * self.choice((1, -1))
        return self.uniform(-1, 1) * 10.0 ** self.randint(-30, 30)

    def scalar(self, op: str, name: str, kind: type) -> Any:
        """A value that an attribute of an op may have."""
        if kind is str:
            return self.choice(("sum", "mean", "symmetric"))
        while True:
            value = (
                self.coin() if kind is bool else self.randint(-9, 1 << 33) if kind is int else self.number()
            )
            if wrong_number(op, name, value) is None:
                return value

    def record(self, kind: type[T], **fixed: Any) -> T:
        """A dataclass with numbers within their limits, often at one of them."""
        drawn = {n: self.within(limits) for n, limits in limits_of(kind).items() if n not in fixed}
        return kind(**drawn, **fixed)

    def within(self, limits: Limits) -> Any:
        """A value that the limits admit."""
        if limits.choices:
            return self.choice(limits.choices)
        kind = int if limits.whole else float
        ends = [kind(n) for n in (limits.least, limits.most) if limits.admit(n) and limits.admit(kind(n))]
        if ends and self.coin():
            return self.choice(ends)
        if limits.whole:
            return self.randint(int(limits.least), int(min(limits.most, 10**9)))
        return max(self.uniform(limits.least, min(limits.most, 1)) * 10.0 ** -self.randint(0, 30), 5e-324)


def train(d: Dice) -> Train:
    calls = d.randint(1, 9)
    return d.record(
        Train, optimizer=d.record(Optimizer), lr_schedule=lr_schedule(d), batch=calls * d.choice((1, 2, 4, 8)),
        microbatches=calls, data=d.name(),
        stages=tuple(d.within(limits_of(Train)["stages"]) for _ in range(d.choice((0, 0, 3)))),
    )  # fmt: skip


def lr_schedule(d: Dice) -> LrSchedule:
    warmup = d.randint(0, 99)
    return LrSchedule(warmup, d.choice((0, warmup + d.randint(1, 99))), d.random())


def wafer(d: Dice, least: int) -> Wafer:
    """A small mesh with at least `least` live dies, and some damage."""
    cols = d.randint(1, 4)
    rows = max(d.randint(1, 4), -(-least // cols))
    every = [(r, c) for r in range(rows) for c in range(cols)]
    dead = d.sample(every, d.randint(0, min(2, len(every) - least)))
    hops = [((r, c), (r, c + 1)) for r, c in every if c + 1 < cols]
    hops += [((r, c), (r + 1, c)) for r, c in every if r + 1 < rows]
    links = d.choices(hops, k=d.randint(0, 2)) if hops else []
    die = d.record(Die, hbm_bandwidth=d.randint(1, 1 << 60))
    down = dead_links(hop for hop in hops if not {*hop} & {*dead})
    circuits = d.choice((None, Circuits(d.randint(1, 4), 4, d.random(), True, down), Circuits(2, 4)))
    return Wafer(
        d.name(), rows, cols, die, d.record(Link), frozenset(dead), dead_links(links), circuits=circuits
    )


def header(d: Dice, level: Level) -> Module:
    """A module without arrays, procedures and calls; its dies are placed if it is of the fabric level."""
    axes = tuple(zip(("dp", "tp"), d.choices((2, 2, 3), k=d.randint(0, 2)), strict=False))
    count = prod(n for _, n in axes)
    machine = wafer(d, count)
    live = [i for i in range(machine.dies) if machine.coordinate(i) not in machine.dead_dies]
    placed = level is Level.FABRIC or d.coin()
    dies = tuple(d.sample(live, count)) if placed else ()
    return Module(d.name(), level, axes, train(d), machine, (), (), (), dies)
