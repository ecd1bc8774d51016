"""The assignment of comments to lines of the tree, by position alone.

A comment alone on its line, or in the middle of a line node, goes before the next (or that) line node; behind
`}` or a finished line it stays there; before a closing bracket it is the tail of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from wscc.frontend.ast import Trivia
from wscc.frontend.scan import WORDS

_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")


@dataclass(frozen=True, slots=True)
class Extent:
    """A line node, or a body from its `{` (or the start of the file) on; `end` is exclusive."""

    start: int
    end: int
    is_body: bool
    keeps_blanks: bool = True


@dataclass(slots=True)
class Attached:
    """Trivia by the start of the line node; opening and tail comments by the start of the body."""

    trivia: dict[int, Trivia] = field(default_factory=dict)
    bodies: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Open:
    """A line node or body that has begun and not ended; `last` is where its latest finished child ended."""

    extent: Extent
    before: list[str] = field(default_factory=list)
    after: str = ""
    blank: bool = False
    last: int = -1


class _Sweep:
    """A sweep over the text that keeps the nodes that are open at its position on a stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[_Open] = []
        self.finished: list[_Open] = []
        self.recent: _Open | None = None  # the node that a comment on the same line belongs to
        self.recent_end = -1

    def enter(self, extent: Extent) -> None:
        node = _Open(extent)
        if extent.is_body and extent.start >= 0:  # the file itself has no `{` that a comment could follow
            self.recent, self.recent_end = node, extent.start + 1
        elif not extent.is_body:
            body = self.stack[-1]
            node.before, body.before = body.before, []
            gap = self.text[body.last : extent.start] if body.last >= 0 else ""
            node.blank = extent.keeps_blanks and _BLANK_LINE.search(gap) is not None
        self.stack.append(node)

    def leave(self) -> None:
        node = self.stack.pop()
        self.finished.append(node)
        if not node.extent.is_body:
            self.recent, self.recent_end = node, node.extent.end
            if self.stack:
                self.stack[-1].last = node.extent.end

    def comment(self, start: int, text: str) -> None:
        holder = self.stack[-1]
        follows = self.recent is not None and "\n" not in self.text[self.recent_end : start]
        if holder.extent.is_body and follows and self.recent is not None and not self.recent.after:
            self.recent.after = text
        else:
            holder.before.append(text)


def attach(text: str, extents: Iterable[Extent]) -> Attached:
    """Give each comment of the text to one of the extents, which nest and lie inside the first of them."""
    pending = sorted(extents, key=lambda e: (e.start, -e.end, e.is_body))
    sweep, position = _Sweep(text), 0

    def advance(to: int) -> None:
        nonlocal position
        while True:
            if (
                sweep.stack
                and sweep.stack[-1].extent.end <= to
                and (position == len(pending) or pending[position].start >= sweep.stack[-1].extent.end)
            ):
                sweep.leave()
            elif position < len(pending) and pending[position].start < to:
                sweep.enter(pending[position])
                position += 1
            else:
                return

    for word in WORDS.finditer(text):
        if word.group().startswith("#"):
            advance(word.start())
            sweep.comment(word.start(), word.group().rstrip())
    advance(len(text) + 2)
    return _collect(sweep.finished)


def _collect(finished: list[_Open]) -> Attached:
    attached = Attached()
    for node in finished:
        if node.extent.is_body:
            attached.bodies[node.extent.start] = (node.after, tuple(node.before))
        elif node.before or node.after or node.blank:
            attached.trivia[node.extent.start] = Trivia(tuple(node.before), node.after, node.blank)
    return attached
