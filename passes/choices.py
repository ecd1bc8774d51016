"""The choices of the command line that select passes or set their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.diagnostics import Source

# The mapper that guarantees rings and paths of neighbours.
DEFAULT_MAPPER: Final = "cpsat"
MAPPERS: Final = ("snake", "smap", "gmap", DEFAULT_MAPPER)
ROUTINGS: Final = ("xy", "adaptive")
ALLGATHERS: Final = ("auto", "ring", "multicast")


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of one compilation.

    `mapper`: the algorithm that places the dies. `routing`: `xy` (initial routes), `adaptive` (TCME), or empty for
    adaptive from `-O2` on. `allgather`: the algorithm of each reshard, the fastest by estimate (`auto`), from
    neighbour to neighbour (`ring`), or gathers from each die to all others at once (`multicast`). `stagger`: the link
    model of the simulation that decides whether clusters of dies that share hot links start apart (empty: all start at
    once). `call_order`: the text of a call order for the step (None: that of `stages`). `max_iter` and `enough` end the
    search for routes of a phase: after so many rounds, and once no link is busy for longer than so many per cent of the
    time that the phase computes.
    """

    mapper: str = DEFAULT_MAPPER
    routing: str = ""
    allgather: str = ALLGATHERS[0]
    stagger: str = ""
    call_order: Source | None = None
    max_iter: int = 10
    enough: int = 0


DEFAULT: Final = Choices()
