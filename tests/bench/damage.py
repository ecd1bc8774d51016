"""all_gather and all_to_all around every damage of one or two dies or links: the worst time over the bound.

Damages that turn or mirror into each other count once (a square has eight symmetries). Pairs that cut the mesh in
two are left out. Of all_to_all, which takes seconds for each, a sample.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeGuard

from wscc.collectives.choose import collective, make_request
from wscc.collectives.plan import Op
from wscc.collectives.timing import LinkModel
from wscc.machine.links import CUT_THROUGH, LINK_MODELS
from wscc.machine.topology import Topology
from wscc.machine.wafer import Wafer, dead_links

Die = tuple[int, int]
# A die, or a link as its two dies.
Part = Die | tuple[Die, Die]
Damage = frozenset[Part]

SIZE = 1 << 26
PAIRS, EXCHANGES = 25, 12


def show_damage(quick: bool) -> None:
    print(
        f"time over the bound of {SIZE >> 20} MiB, packing, around damage: the worst, most CPU seconds, and where"
    )
    for n in (6, 8):
        for count in (1, 2):
            damages = list(distinct(n, count))
            most = len(damages) if count == 1 or not quick else PAIRS
            some = sorted(Random(n).sample(damages, min(most, len(damages))), key=_order)
            for kind in LINK_MODELS:
                _show(n, count, Op.ALL_GATHER, some, len(damages), kind)
            few = Random(n + 1).sample(some, min(2 if quick else EXCHANGES, len(some)))
            _show(n, count, Op.ALL_TO_ALL, few, len(damages), CUT_THROUGH)
    print()


def _show(n: int, count: int, op: Op, some: list[Damage], of: int, kind: str) -> None:
    model = LinkModel.of(256 * 10**9, 1e-9, 256, kind)
    worst, where, slowest = 0.0, "", 0.0
    for damage in some:
        start = time.process_time()
        found = collective(make_request(op, topology(n, damage), SIZE), model, "packing")
        slowest = max(slowest, time.process_time() - start)
        if found.ratio > worst:
            worst, where = found.ratio, " ".join(map(_word, sorted(damage, key=str)))
    case = f"{n} x {n}, {count} dead, {len(some)} of {of}"
    print(f"  {op:<12}{case:<30}{kind:<19}{worst:>8.4f}  {slowest:>5.1f} s  {where}", flush=True)


def distinct(n: int, count: int) -> Iterator[Damage]:
    """Every damage of `count` parts that leaves the mesh in one piece, one of each set of mirror images."""
    dies = list(itertools.product(range(n), repeat=2))
    links = [(a, b) for a, b in itertools.combinations(dies, 2) if abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1]
    seen: set[Damage] = set()
    for parts in itertools.combinations([*dies, *links], count):
        damage = frozenset(parts)
        if damage in seen:
            continue
        seen.update(images(n, damage))
        if len(topology(n, damage).islands) == 1 and not _is_repeated(damage):
            yield damage


def images(n: int, damage: Damage) -> Iterator[Damage]:
    for flip, turns in itertools.product((False, True), range(4)):

        def moved(die: Die, flip: bool = flip, turns: int = turns) -> Die:
            r, c = (die[1], die[0]) if flip else die
            for _ in range(turns):
                r, c = c, n - 1 - r
            return r, c

        yield frozenset(_mapped(part, moved) for part in damage)


def _mapped(part: Part, moved: Callable[[Die], Die]) -> Part:
    if not is_link(part):
        return moved(part)
    first, second = sorted(map(moved, part))
    return first, second


def is_link(part: Part) -> TypeGuard[tuple[Die, Die]]:
    return not isinstance(part[0], int)


def _is_repeated(damage: Damage) -> bool:
    """A dead link of a dead die is no damage of its own."""
    return any(a in damage or b in damage for a, b in filter(is_link, damage))


def topology(n: int, damage: Damage) -> Topology:
    dies = frozenset(p for p in damage if not is_link(p))
    links = [p for p in damage if is_link(p)]
    return Topology.mesh(Wafer("w", n, n, dead_dies=dies, dead_links=dead_links(links)))


def _order(damage: Damage) -> str:
    return str(sorted(damage, key=str))


def _word(part: Part) -> str:
    if is_link(part):
        (a, b), (c, d) = part
        return f"link:{a},{b}-{c},{d}"
    return f"die:{part[0]},{part[1]}"
