"""Changes that a refusal proposes: each was tried, and the program compiles with it.

The code that refuses names candidates, which it cannot judge: others may refuse them. They are tried in order, and what
refuses one may name the next (another batch, and for it another strategy). Work is bounded by counts, never by time, so
that a refusal reads the same on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.analysis.memory.room import most_bytes
from wscc.diagnostics import Code, CompileError, Diagnostic, Proposal, fail
from wscc.driver.pipeline import Insertion, Pipeline
from wscc.frontend import ast
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.ir.module import Module
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.place import Place
from wscc.passes.plan_memory.capacity import larger_dies

_MOST: Final = 3  # proposals of one refusal
_DEEPEST: Final = 3  # changes one after the other
# Trials are counted by how far they come: a trial that is placed, or planned as a whole, takes as long as others do.
_BUDGET: Final = 90
_PLACED: Final = 5
_WHOLE: Final = 20
_PLACEMENT: Final = frozenset({Code.DISCONNECTED, Code.NO_PATH})


@dataclass(slots=True)
class Trials:
    """Trials of changes of one program, until the budget is used up."""

    file: ast.File
    overrides: Overrides
    level: int = 2
    choices: Choices = DEFAULT
    insertions: Sequence[Insertion] = ()
    left: int = _BUDGET

    def refusal(self, change: Proposal) -> CompileError | None:
        """The refusal of the program with the change; None if it compiles."""
        self.left -= 1
        try:
            file = parse(change.edit.edited()) if change.edit else self.file
            self._compile(elaborate(resolve(file, changed(self.overrides, change))))
        except CompileError as refused:
            self.left -= _PLACED * (refused.diagnostics[0].code in _PLACEMENT)
            return refused
        self.left -= _PLACED
        return None

    def _compile(self, graph: Module) -> None:
        """Run the passes that may refuse. The plan of memory, which takes most of the time, is made where a bound of it
        does not fit. Raises `CompileError`."""
        pipeline = Pipeline.default(self.level, self.choices).with_own(self.insertions)
        placed = pipeline.until(Place).run(graph, verify_each=False)
        die, least, most = placed.die, peak_array_bytes(placed), most_bytes(placed)
        if least > die.sram + die.hbm:
            message = "what rests on each die is more than its memory"
            raise fail(
                Code.OUT_OF_MEMORY, message, candidates=[larger_dies(die, n) for n in (least * 5 // 4, most)]
            )
        if most > die.sram + die.hbm:
            self.left -= _WHOLE
            pipeline.run(graph, verify_each=False)


def changed(overrides: Overrides, change: Proposal) -> Overrides:
    """The options of a command line, with those of a change behind them."""
    options = change.options
    pairs = list(zip(options[::2], options[1::2], strict=True))
    sets = tuple(value for name, value in pairs if name == "--set")
    strategy = next((value for name, value in pairs if name == "--parallel"), overrides.parallel)
    return replace(overrides, sets=(*overrides.sets, *sets), parallel=strategy)


@contextmanager
def proposing(trials: Trials) -> Iterator[None]:
    """Give the errors raised inside what `with_proposals` finds."""
    try:
        yield
    except CompileError as error:
        raise with_proposals(error, trials) from error


def with_proposals(error: CompileError, trials: Trials) -> CompileError:
    """The error with changes that compile, if any is found; else its help says what refuses the first candidate."""
    if not all(d.candidates for d in error.diagnostics):
        return error  # some mistake is none of numbers
    first, *others = error.diagnostics
    search = _Search(trials)
    if found := search.run(first.candidates):
        return type(error)(first.proposing(found), *others)
    assert search.first_refusal is not None, "there is a candidate, and it was tried"
    tried, refused = search.first_refusal
    help = f"no change near it compiles: {tried.words} is refused by {refused.code}, {refused.message}"
    return type(error)(replace(first, help="\n".join([*first.help.splitlines(), help])), *others)


@dataclass(slots=True)
class _Search:
    """A search for changes that compile: all that are one change, then those that follow from their refusals."""

    trials: Trials
    found: list[Proposal] = field(default_factory=list)
    seen: set[Proposal] = field(default_factory=set)
    first_refusal: tuple[Proposal, Diagnostic] | None = None

    def run(self, candidates: Sequence[Proposal]) -> list[Proposal]:
        changes = list(candidates)
        for _ in range(_DEEPEST):
            changes = sorted(self._tried(changes), key=lambda c: len(c.keys))
            if self.found:
                break
        return self.found

    def _tried(self, changes: Sequence[Proposal]) -> Iterator[Proposal]:
        """Changes that follow from the refusals of these; of those that compile, the first of each kind is
        found, and none that changes more than another."""
        for change in changes:
            if len(self.found) == _MOST or self.trials.left <= 0:
                return
            if change in self.seen or any(set(p.keys) <= set(change.keys) for p in self.found):
                continue
            self.seen.add(change)
            refused = self.trials.refusal(change)
            if refused is None:
                self.found.append(change)
            else:
                self.first_refusal = self.first_refusal or (change, refused.diagnostics[0])
                # Places are those of the changed text: one change of it must do.
                candidates = [c for c in refused.diagnostics[0].candidates if not (c.edit and change.edit)]
                yield from map(change.then, candidates)
