"""Templates of instructions for a role, and the NumPy views of a die's arena that turn them into prepared calls.

A `Template` holds all that does not differ between the dies of a role; a die then only makes the views.
Instructions that use the same addresses share one prepared call, however many calls there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.exchange import described
from wscc.backends.interpreter.kernels.scratch import Array
from wscc.backends.interpreter.kernels.table import kernel
from wscc.backends.interpreter.kernels.views import Shape, merged
from wscc.backends.interpreter.operand_checks import mistakes_of, wrong_attributes
from wscc.diagnostics import Code as ErrorCode
from wscc.diagnostics import fail
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Code, Column, Field, Instruction, Operand, Scalar

# Arrays of one die that are cached by the description that another process gave of them.
_MOST_DESCRIBED = 1 << 14

MESSAGES = frozenset({"post", "send", "wait"})


@dataclass(frozen=True, slots=True)
class Place:
    """A view without its address: `arg` and `offset` as in `Operand`, strides in bytes.

    The view covers bytes `low` to `high` (exclusive) counted from its address, all of them if it is `dense`.
    """

    arg: int
    offset: Field
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    low: int
    high: int
    dense: bool


@dataclass(frozen=True, slots=True)
class Template:
    """An instruction ready to be given addresses; the first `writes` operands are written."""

    opcode: str
    run: Callable[..., Any]
    places: tuple[Place, ...]
    writes: int
    attrs: tuple[Scalar, ...]
    args: tuple[int, ...]


def extent(sizes: Sequence[int], strides: Sequence[int], item: int) -> tuple[int, int]:
    """The first byte of a view and one past its last, counted from its address; strides and `item` in bytes."""
    if 0 in sizes:
        return 0, 0
    spans = [(n - 1) * s for n, s in zip(sizes, strides, strict=True)]
    return sum(s for s in spans if s < 0), sum(s for s in spans if s > 0) + item


@dataclass(frozen=True, slots=True)
class _Form:
    """What instructions have in common that differ in addresses alone, and messages that differ in attributes: the
    sizes, strides, type, first byte, end and density of each operand, and what runs."""

    views: tuple[tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], int, int, bool], ...]
    run: Callable[..., Any]


class Templates:
    """Templates of the instructions of a program, made once. Most differ from others in addresses alone: the rest of
    them is checked once."""

    def __init__(self) -> None:
        self._known: defaultdict[int, dict[int, Template]] = defaultdict(dict)
        self._forms: dict[object, _Form] = {}

    def with_arguments(self, args: int) -> dict[int, Template]:
        """The templates for procedures of so many arguments, by the identity of the instruction; it must be kept."""
        return self._known[args]

    def of(self, x: Instruction) -> Template:
        """The template of an instruction. `CompileError` W501 if it is not as `INSTRUCTIONS` declares."""
        operands = (*x.writes, *x.reads)
        # True and 1 are equal, and so are forms with them: values are looked at each time.
        attrs = tuple([k for k, _ in x.attrs]) if x.opcode in MESSAGES else x.attrs
        key = x.opcode, len(x.writes), attrs, *[(o.shape, o.strides, o.dtype) for o in operands]
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = _form(x)
        elif words := next(wrong_attributes(x), ""):
            raise fail(ErrorCode.ARTIFACT, words)
        places = tuple([Place(o.arg, o.offset, *view) for o, view in zip(operands, form.views, strict=True)])
        return Template(
            x.opcode, form.run, places, len(x.writes), tuple([v for _, v in x.attrs]),
            tuple(sorted({o.arg for o in operands if o.arg >= 0})),
        )  # fmt: skip


def _form(x: Instruction) -> _Form:
    for words in mistakes_of(x):
        raise fail(ErrorCode.ARTIFACT, words)
    row, operands = INSTRUCTIONS[x.opcode], (*x.writes, *x.reads)
    try:
        shapes = merged(row.opcode, [_shape(o) for o in operands])
    except ValueError as mistake:
        raise fail(ErrorCode.ARTIFACT, str(mistake)) from mistake
    if row.opcode in MESSAGES:
        run: Callable[..., Any] = _no_kernel
    else:
        accumulate = "accumulate" in row.attr_names and bool(x.attr("accumulate"))
        run = kernel(row.opcode, [o.dtype.numpy for o in operands], len(x.writes), accumulate)
    views = ((s.sizes, s.strides, o.dtype.numpy, *_bytes(s)) for o, s in zip(operands, shapes, strict=True))
    return _Form(tuple(views), run)


def _no_kernel(*_: object) -> None:
    raise AssertionError("messages are bound by the engine")


def _shape(o: Operand) -> Shape:
    return Shape(o.shape, tuple(s * o.dtype.size for s in o.strides), o.dtype.size)


def _bytes(s: Shape) -> tuple[int, int, bool]:
    """The first byte of a view, one past its last, and whether it covers all between."""
    low, high = extent(s.sizes, s.strides, s.item)
    count = prod(n for n, stride in zip(s.sizes, s.strides, strict=True) if stride)
    return low, high, (low, high) == (0, s.item * count)


@dataclass(frozen=True, slots=True)
class Routine:
    """A procedure of a role, as templates; `distinct` are those of its body, each once."""

    name: str
    args: int
    body: tuple[Template, ...]
    distinct: tuple[Template, ...]

    @classmethod
    def of(cls, code: Code, cache: Templates | None = None) -> Routine:
        """The routine of a procedure. `cache` has the templates of instructions that roles share, and gains those of
        this one."""
        templates = Templates() if cache is None else cache
        known = templates.with_arguments(code.args)
        # Bodies are long, and the same few instructions: no step of a Python loop for each.
        numbers = list(map(id, code.body))
        first = dict(zip(reversed(numbers), range(len(numbers) - 1, -1, -1), strict=True))
        for i in sorted(at for number, at in first.items() if number not in known):
            known[numbers[i]] = _checked_template(code, i, code.body[i], templates)
        body = tuple(map(known.__getitem__, numbers))
        return cls(code.name, code.args, body, tuple(map(known.__getitem__, dict.fromkeys(numbers))))


def _checked_template(code: Code, index: int, instruction: Instruction, templates: Templates) -> Template:
    """The template of instruction `index`, whose arguments the procedure must have."""
    arg = max((o.arg for o in (*instruction.writes, *instruction.reads)), default=-1)
    if arg >= code.args:
        raise fail(ErrorCode.ARTIFACT, f"`{code.name}` instruction {index}: argument {arg} of {code.args}")
    return templates.of(instruction)


@dataclass(slots=True)
class DieMemory:
    """The arena of one die (64-byte aligned) and its row of the binding table.

    `highest` is one past the last byte that a prepared instruction or the host writes.
    """

    arena: NDArray[np.uint8]
    row: tuple[int, ...]
    highest: int = 0
    described_arrays: dict[bytes, Array] = field(
        default_factory=dict
    )  # by the description of another process
    buffer: memoryview = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.buffer = self.arena.data

    def address(self, place: Place, args: Sequence[int]) -> int:
        """The address in bytes of an operand in a call with these arguments."""
        offset = place.offset
        if isinstance(offset, Column):
            offset = self.row[offset.index]
        return offset + args[place.arg] if place.arg >= 0 else offset

    def views(self, t: Template, args: Sequence[int]) -> list[Array]:
        """The operands of an instruction; updates `highest` by those that it writes."""
        views = []
        for i, place in enumerate(t.places):
            address = self.address(place, args)
            if i < t.writes:
                self.highest = max(self.highest, address + place.high)
            views.append(np.ndarray(place.sizes, place.dtype, self.buffer, address, place.strides))
        return views

    def described(self, words: bytes) -> Array:
        """An array in this memory that another process has described."""
        if words not in self.described_arrays:
            if len(self.described_arrays) > _MOST_DESCRIBED:
                self.described_arrays.clear()
            self.described_arrays[words] = described(words, self.buffer)
        return self.described_arrays[words]

    def attrs(self, t: Template) -> list[Any]:
        """The attributes of an instruction on this die, columns replaced by their values."""
        return [self.row[a.index] if isinstance(a, Column) else a for a in t.attrs]
