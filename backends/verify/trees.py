"""Messages over merged routes: a die sends the same bytes over all routes of a tree, or over none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from wscc.backends.interpreter.load_checks import column
from wscc.backends.verify.findings import Finding
from wscc.backends.verify.messages import SEND, Part
from wscc.ir.routes import ALONE
from wscc.ir.streams.program import Operand, Streams


def check_trees(parts: Sequence[Part], streams: Streams, name: Callable[[int], str]) -> Iterator[Finding]:
    """Of one procedure."""
    members: dict[int, list[int]] = {}
    for number, route in enumerate(streams.routes):
        if route.merged != ALONE:
            members.setdefault(route.merged, []).append(number)
    for part in parts if members else ():
        sent: dict[tuple[int, int], Counter[tuple[Operand, int]]] = {}
        for e in part.events:
            if e.kind == SEND:
                x = part.code.body[e.at]
                routes = column(x.attr("route"), streams.bindings[part.dies])
                for die, route in zip(part.dies.tolist(), routes.tolist(), strict=True):
                    if (tree := streams.routes[route].merged) != ALONE:
                        sent.setdefault((die, tree), Counter())[x.reads[0], route] += 1
        for (die, tree), counts in sent.items():
            for o in dict.fromkeys(o for o, _ in counts):
                if len({counts[o, route] for route in members[tree]}) > 1:
                    words = f"does not send the same bytes over all of the merged routes {members[tree]}"
                    yield Finding("messages", words, name(die), part.code.name)
