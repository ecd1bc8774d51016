"""A diagnostic as data: its code, its message, and labels at places of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wscc.diagnostics.codes import Code


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name it is shown under (a path as the user typed it, or `<command line>`)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters of one source; `line` and `column` count from 1."""

    source: Source | None
    start: int
    end: int
    line: int
    column: int

    @property
    def file(self) -> str:
        return self.source.name if self.source else ""


NO_SPAN = Span(None, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Label:
    """A span with words about it; the primary label says *what*, secondary ones say *why*."""

    span: Span
    text: str = ""


Degrees = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """Other words at a place; `said` shows them among their neighbours."""

    span: Span
    text: str
    said: str

    def edited(self) -> Source:
        """The source with the other words."""
        source = self.span.source
        assert source is not None, "a place of a text"
        return Source(source.name, source.text[: self.span.start] + self.text + source.text[self.span.end :])


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of a program: another strategy (`()` is one die, None the same), other values by `--set` key, or other
    words at a place of its text.

    Proposal((("dp", 2),), (("train.batch", "8"),))    `parallel dp = 2` with `batch 8`
    """

    parallel: Degrees | None = None
    sets: tuple[tuple[str, str], ...] = ()
    edit: Edit | None = None

    def then(self, other: Proposal) -> Proposal:
        """Both changes; where they contradict each other, the later one."""
        parallel = self.parallel if other.parallel is None else other.parallel
        return Proposal(
            parallel, tuple({**dict(self.sets), **dict(other.sets)}.items()), other.edit or self.edit
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """What it changes, without the values."""
        others = (["parallel"] if self.parallel is not None else []) + ["text"] * (self.edit is not None)
        return (*others, *(key for key, _ in self.sets))

    @property
    def options(self) -> tuple[str, ...]:
        """The words that make the change at the end of a command line, but for that of the text."""
        degrees = ",".join(f"{a}={n}" for a, n in self.parallel or (("dp", 1),))
        strategy = () if self.parallel is None else ("--parallel", degrees)
        return (*strategy, *(word for key, value in self.sets for word in ("--set", f"{key}={value}")))

    @property
    def words(self) -> str:
        """The change as the file would say it."""
        degrees = ", ".join(f"{a} = {n}" for a, n in self.parallel or (("dp", 1),))
        strategy = [] if self.parallel is None else [f"`parallel {degrees}`"]
        strategy += [f"`{self.edit.said}`"] if self.edit else []
        values = [f"`{key.split('.')[-1]} {_spaced(key, value)}`" for key, value in self.sets]
        return " with ".join([*strategy, *([" and ".join(values)] if values else [])])


def _spaced(key: str, value: str) -> str:
    """The value of a `--set` as a file has it."""
    return value.replace("x", " x ") if key == "wafer.mesh" else value


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake. `message` stands alone on one line: lowercase, no full stop, names in backticks.

    `candidates` are changes that might help, from the code that refuses: it knows numbers, but not what others will say
    of the change, so they are never shown. `proposals` are changes with which the program compiles: each was tried.
    """

    code: Code
    message: str
    label: Label = Label(NO_SPAN)
    others: tuple[Label, ...] = ()
    help: str = ""
    candidates: tuple[Proposal, ...] = ()
    proposals: tuple[Proposal, ...] = ()

    def proposing(self, proposals: Sequence[Proposal]) -> Diagnostic:
        """The diagnostic with changes that were tried, and compile; its help says so first."""
        *most, last = [p.words for p in proposals]
        said = f"{', '.join(most)} or {last}" if most else last
        help = "\n".join([f"{said} would work", *([self.help] if self.help else [])])
        return replace(self, help=help, proposals=tuple(proposals))
