"""What refusals propose, followed: `python -m tests.fuzz.hints [COUNT] [SEED]`.

Right programs get one mistake or two, one behind the other: a number of an option, a size, a rate or a machine; a slip
in a word; an option of the command line; pins that leave a search little. Each change that a refusal proposes must
compile. A word that it asks for must end that mistake. A help that says what works, fits or is nearest must come with
changes that were tried.
"""

from __future__ import annotations

import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.fuzz.draw import AXES, Draw, drawn
from tests.oracles.predicate import expected
from wscc.diagnostics import CompileError, Diagnostic, Source
from wscc.driver.compile import compile_source
from wscc.driver.proposals import changed
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.parse import parse
from wscc.search import search
from wscc.search.candidates import Problem

_NUMBERS: Final = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "5",
    "7",
    "12",
    "0.5",
    "1.5",
    "1e-9",
    "1e30",
    "1e400",
    str(2**63),
)
_LITERAL: Final = re.compile(r"(?<![\w.\"])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
_WORD: Final = re.compile(r"[a-z_]{4,}")
_PROMISES: Final = re.compile(r"\bworks?\b|\bfits\b|\bis nearest\b")
_MEANT: Final = re.compile(r"did you mean `([^`]+)`\?")
_OPTIONS: Final = (
    "model.d", "model.f", "model.kv", "model.e", "model.vocab", "model.seq", "train.batch", "train.microbatch",
    "train.zero", "train.interleave", "train.clip", "wafer.mesh", "wafer.die.sram", "wafer.die.tile",
    "train.recompute", "train.seed", "train.validation", "wafer.link.latency",
)  # fmt: skip
_SETTINGS: Final = {
    "microbatch": ("1", "2", "3", "8"),
    "recompute": ("none", "selective", "full"),
    "zero": ("0", "1", "3"),
    "interleave": ("1", "2", "4"),
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A program with a mistake, as a command would get it; `searches`: its plan is open, but for pins."""

    text: str
    level: int
    overrides: Overrides = NO_OVERRIDES
    searches: bool = False

    def run(self) -> None:
        """Compile it, or search a plan of it. Raises `CompileError`."""
        if self.searches:
            search(Problem(parse(Source("m.wsl", self.text)), self.overrides), budget=1, limit=8)
        else:
            compile_source(Source("m.wsl", self.text), self.overrides, self.level)


# ---- mistakes

Mistake = Callable[[Attempt, random.Random], Attempt]


def _number(a: Attempt, rng: random.Random) -> Attempt:
    """Another number, in any place; near the old one or anything."""
    m = rng.choice(list(_LITERAL.finditer(a.text)))
    near = ()
    if m[0].isdigit():
        near = (str(int(m[0]) + 1), str(int(m[0]) * 2), str(int(m[0]) * 3), str(-int(m[0])))
    return replace(a, text=a.text[: m.start()] + rng.choice((*near, *_NUMBERS)) + a.text[m.end() :])


def _option_of_op(a: Attempt, rng: random.Random) -> Attempt:
    """Another number in an option that is given by its name, if there is one."""
    given = list(
        re.finditer(r"(?<=\w = )[\d.e-]+(?=[,)])", a.text.partition("model m(")[2].partition("{")[2])
    )
    if not given:
        return _number(a, rng)
    m, at = rng.choice(given), a.text.index("{", a.text.index("model m(")) + 1
    return replace(a, text=a.text[: at + m.start()] + rng.choice(_NUMBERS) + a.text[at + m.end() :])


def _slip(a: Attempt, rng: random.Random) -> Attempt:
    """A letter left out, doubled or exchanged with the next, in any word."""
    m = rng.choice(list(_WORD.finditer(a.text)))
    return replace(a, text=a.text[: m.start()] + _slipped(m[0], rng) + a.text[m.end() :])


def _slipped(word: str, rng: random.Random) -> str:
    i = rng.randrange(1, len(word) - 1)
    return word[:i] + rng.choice(("", word[i] * 2, word[i + 1] + word[i])) + word[i + rng.choice((1, 2)) :]


def _set(a: Attempt, rng: random.Random) -> Attempt:
    key = rng.choice(_OPTIONS)
    value = rng.choice(("2x3", "1x5", "3x3", "0x4") if key == "wafer.mesh" else _NUMBERS)
    if key == "train.recompute":
        value = _slipped(rng.choice(("selective", "full", "none")), rng)
    if rng.random() < 0.1:
        key = ".".join([*key.split(".")[:-1], _slipped("x" + key.split(".")[-1] + "x", rng)[1:-1] or "x"])
    return replace(a, overrides=replace(a.overrides, sets=(*a.overrides.sets, f"{key}={value}")))


def _strategy(a: Attempt, rng: random.Random) -> Attempt:
    axes = rng.sample(AXES, rng.choice((1, 2, 2, 3)))
    given = ",".join(f"{x}={rng.choice((2, 2, 3, 4, 5, 8))}" for x in axes)
    return replace(a, overrides=replace(a.overrides, parallel=given))


def _dead(a: Attempt, rng: random.Random) -> Attempt:
    at = [f"{rng.randrange(4)},{rng.randrange(4)}" for _ in range(2)]
    dead = f"die:{at[0]}" if rng.random() < 0.7 else f"link:{at[0]}-{at[1]}"
    return replace(a, overrides=replace(a.overrides, dead=(*a.overrides.dead, dead)))


def _pins(a: Attempt, rng: random.Random) -> Attempt:
    """Pins of two to four degrees and settings; the plan is open."""
    names = rng.sample([*AXES, *_SETTINGS], rng.choice((2, 3, 4)))
    pins = tuple(f"{n}={rng.choice(_SETTINGS.get(n, ('1', '2', '3', '4', '8')))}" for n in names)
    return replace(a, overrides=replace(a.overrides, parallel="auto", pins=pins), searches=True)


MISTAKES: Final[tuple[Mistake, ...]] = (
    _number, _number, _option_of_op, _option_of_op, _slip, _set, _set, _strategy, _dead, _pins,
)  # fmt: skip


def attempt(rng: random.Random) -> Attempt:
    """A right program with one mistake, or with two, one behind the other."""
    draw = _right(rng)
    found = Attempt(draw.text, draw.level)
    for mistake in rng.choices(MISTAKES, k=rng.choice((1, 1, 2))):
        found = mistake(found, rng)
    return found


def _right(rng: random.Random) -> Draw:
    draw = drawn(rng)
    while expected(draw).codes or "pairs" in draw.text:
        draw = drawn(rng)
    return draw


# ---- what is wrong with a help


def faults(a: Attempt, counts: Counter[str]) -> Iterator[str]:
    """What is untrue in the helps of the attempt's refusal, in words."""
    refused = _refused(a)
    if refused is None:
        counts["compiles"] += 1
        return
    for d in refused.diagnostics:
        counts[f"{d.code} {'with proposals' if d.proposals else 'without'}"] += 1
        for change in d.proposals:
            text = change.edit.edited().text if change.edit else a.text
            other = _refused(Attempt(text, a.level, changed(_unpinned(a), change)))
            counts["proposals followed"] += 1
            if other is not None:
                yield f"{change.words} was proposed by {d.code}, {d.message}, and is refused: {other}"
        if not d.proposals and _PROMISES.search(d.help):
            yield f"{d.code}, {d.message}: its help promises what was not tried: {d.help}"
        if meant := _MEANT.search(d.help):
            counts["words followed"] += 1
            yield from _not_meant(a, d, meant[1])


def _unpinned(a: Attempt) -> Overrides:
    """The options of the program, for `compile`: a plan in a proposal takes the place of pins."""
    return replace(a.overrides, pins=())


def _refused(a: Attempt) -> CompileError | None:
    try:
        a.run()
    except CompileError as refused:
        return refused
    return None


def _not_meant(a: Attempt, d: Diagnostic, word: str) -> Iterator[str]:
    """The refusal if it stays the same with the word that it asks for in the place that it marks."""
    span = d.label.span
    if span.source is None or span.source.name != "m.wsl":
        return
    marked = a.text[span.start : span.end]
    wrong = next(
        iter(sorted(set(_words(d.message)) & set(re.findall(r"[\w.]+", marked)), key=len)[-1:]), marked
    )
    text = a.text[: span.start] + marked.replace(wrong, word, 1) + a.text[span.end :]
    other = _refused(replace(a, text=text))
    if other and any((x.code, x.message) == (d.code, d.message) for x in other.diagnostics):
        yield f"{d.code}, {d.message}: with `{word}` it is refused as before"


def _words(message: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", message)


def main(count: int, seed: int) -> int:
    counts: Counter[str] = Counter()
    failed = 0
    for n in range(seed, seed + count):
        a = attempt(random.Random(n))
        try:
            found = list(faults(a, counts))
        except Exception as error:  # whatever escapes is what the fuzzer looks for
            found = ["".join(traceback.format_exception(error)[-3:])]
        for fault in found:
            failed += 1
            print(f"# {n}: {fault}\n# {a.overrides}\n{a.text if '-v' in sys.argv else ''}", flush=True)
    for what, number in sorted(counts.items()):
        print(f"{number:>6}  {what}")
    print(f"{failed} untrue helps")
    return int(failed > 0)


if __name__ == "__main__":
    given = [int(x) for x in sys.argv[1:] if x.isdigit()]
    sys.exit(main(*(given + [500, 0][len(given) :])))
