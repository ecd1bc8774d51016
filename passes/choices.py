"""What a user chooses between on the command line, besides the program itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.diagnostics import Source

# The mapper that keeps the rule of rings and paths.
DEFAULT_MAPPER: Final = "cpsat"
ROUTINGS: Final = ("xy", "adaptive")
ALLGATHERS: Final = ("ring", "multicast")


@dataclass(frozen=True, slots=True)
class Choices:
    """`mapper` places the dies; `routing` is `xy` (initial routes), `adaptive` (TCME), or empty: adaptive from
    `-O2`; `allgather` is how shards are gathered where they do not stream: from neighbour to neighbour (`ring`)
    or from each die to all others at once (`multicast`); `stagger` is the link model in whose simulation clusters of
    dies that share hot links may start apart, where that helps (empty: all start at once); `call_order` is a table of
    the calls of the step in the order to take."""

    mapper: str = DEFAULT_MAPPER
    routing: str = ""
    allgather: str = ALLGATHERS[0]
    stagger: str = ""
    call_order: Source | None = None


DEFAULT: Final = Choices()
