"""Weights of a program read from a checkpoint and saved to one: under a family's names, else under the program's own.

Invariant: `Weights` reads the files that `save` writes. A file with other tensors is refused, with all that are
missing, surplus or of another shape in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from wscc.diagnostics import Code, CompileError, fail
from wscc.huggingface.axes import Axes, Shape, Tensor
from wscc.huggingface.checkpoint import READABLE, Checkpoint, write
from wscc.huggingface.families import EMBEDDING, UNPREFIXED, family_of
from wscc.huggingface.family import HEAD, Family, Mapped, Parameter
from wscc.huggingface.parts import Parts, open_checkpoint

Index = tuple[int, ...]
_SHOWN: Final = 8  # names of each kind of mistake
_PIECE: Final = 1 << 22  # elements compared at once


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: element `index` of our array `ours`, and of that tensor what stands at `inner`; `axes` is
    None if both have the same layout. The file may have more rows of `positions`. Of a tensor that several of ours are
    parts of (`Axes.joined`), it is the part from `start` of the joined axis, which has `total` rows."""

    ours: str
    index: Index
    theirs: str
    shape: Shape
    axes: Axes | None
    positions: bool = False
    inner: Index = ()
    start: int = 0
    total: int = 0

    @property
    def is_part(self) -> bool:
        return self.axes is not None and self.axes.joined is not None

    @property
    def their_shape(self) -> Shape:
        """The shape of the tensor in the file."""
        if self.axes and self.axes.joined is not None:
            at, whole = self.axes.joined, self.own_shape
            return self.axes.merged((*whole[:at], self.total, *whole[at + 1 :]))
        return self.own_shape

    @property
    def own_shape(self) -> Shape:
        """The shape of what is ours of it."""
        return self.axes.their_shape(self.shape) if self.axes else self.shape

    def fits(self, shape: Shape) -> bool:
        """Whether a tensor of that shape in a file holds this one."""
        rows, *rest = self.their_shape or (1,)
        return shape == self.their_shape or (self.positions and shape[1:] == (*rest,) and shape[0] > rows)

    def misfit(self, shape: Shape) -> str:
        """What is wrong with a tensor of that shape."""
        limit = ""
        if self.positions and self.axes and shape[1:] == self.their_shape[1:] and shape[0] > self.axes.pad:
            limit = f": a sequence of {shape[0] - self.axes.pad} at most has positions in it"
        return f"`{self.theirs}` {list(shape)}, not {list(self.their_shape)}{limit}"


def entries(parameters: Iterable[Parameter], prefix: str | None = None, model: str = "") -> tuple[Entry, ...]:
    """Every tensor of a file of these parameters, or part of one; its names have `prefix`, or the first of the family,
    which the name of the model decides where several fit.

    W505 if two would have one name.
    """
    params = tuple(parameters)
    family = family_of(params, model)
    found = _joined([e for p in params for e in _entries_of(p, family, prefix)], family)
    out = {(e.theirs, e.start): e for e in found}
    for e in found:
        other = out[e.theirs, e.start]
        if other != e:
            raise fail(
                Code.WEIGHTS,
                f"`{e.ours}` and `{other.ours}` would both be called `{e.theirs}` in a file of weights",
                help="give the `repeat` or the `block` another name",
            )
    return tuple(out.values())


def _joined(found: list[Entry], family: Family | None) -> list[Entry]:
    """The entries with the places of those that are parts of one tensor, which follow one another as in the family."""
    order = {m.ours: n for n, m in enumerate(family.tensors)} if family else {}
    sizes: dict[str, dict[str, int]] = {}
    for e in sorted((e for e in found if e.is_part), key=lambda e: order[e.ours]):
        assert e.axes
        assert e.axes.joined is not None
        sizes.setdefault(e.theirs, {})[e.ours] = e.own_shape[e.axes.joined]
    out = []
    for e in found:
        if e.is_part:
            parts = sizes[e.theirs]
            before = list(parts).index(e.ours)
            e = replace(e, start=sum(list(parts.values())[:before]), total=sum(parts.values()))
        out.append(e)
    return out


def _entries_of(p: Parameter, family: Family | None, prefix: str | None) -> Iterator[Entry]:
    mapped = family.by_name[p.name] if family else None
    for index in np.ndindex(*p.extents):
        if family and mapped:
            first = family.prefixes[0] if prefix is None else prefix
            yield from _mapped(p, index, mapped, "" if mapped.ours in UNPREFIXED else first)
        else:
            yield Entry(p.name, index, _own_name(p.name, index), p.type.shape, None)


def _mapped(p: Parameter, index: Index, mapped: Mapped, prefix: str) -> Iterator[Entry]:
    """The tensors of an element of a family's parameter: one, or one for each index of those that stand apart."""
    shape, layers = p.type.shape, [mapped.first + mapped.step * i for i in index]
    for n, inner in enumerate(np.ndindex(*shape[: mapped.apart])):
        theirs = prefix + mapped.theirs.format(*layers, n=n)
        yield Entry(p.name, index, theirs, shape[mapped.apart :], mapped.axes, mapped.positions, inner)


def _own_name(name: str, index: Index) -> str:
    """The name of an element of an array in no family: `block.3.wqkv` for `block.wqkv` of layer 3."""
    first, dot, rest = name.partition(".")
    return ".".join([first, *map(str, index), *([rest] if dot else [])])


class Weights:
    """A checkpoint that fits a program."""

    def __init__(self, path: Path, parameters: Iterable[Parameter], model: str = "") -> None:
        """Open a file for a model of that name. W505 if it does not hold exactly these parameters, W002 if it cannot be
        read."""
        params = tuple(parameters)
        family = family_of(params, model)
        self.file = open_checkpoint(path)
        prefix = _prefix(family, self.file) if family else ""
        found = entries(params, prefix, model)
        self._entries: dict[tuple[str, Index], list[Entry]] = {}
        for e in found:
            self._entries.setdefault((e.ours, e.index), []).append(e)
        mistakes = _mistakes(found, self.file, family, prefix)
        if mistakes:
            raise _misfit(path, mistakes, family)
        if family and family.head in self.file.shapes and (HEAD, ()) not in self._entries:
            _refuse_another_head(self.file, family.head, self._entries[EMBEDDING, ()][0].theirs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the file is left out, in words."""
        longer = {
            e: self.file.shapes[e.theirs][0] - e.their_shape[0]
            for (e, *_) in self._entries.values()
            if e.positions
        }
        return tuple(
            f"`{e.theirs}` has {e.shape[0] + more} positions, of which the first {e.shape[0]} are read"
            for e, more in longer.items()
            if more
        )

    def read(self, name: str, index: Index, dtype: np.dtype[Any]) -> Tensor:
        """One element of an array, of our shape, in `dtype`; W505 if it has numbers that are not finite in it."""
        found = self._entries[name, index]
        if not found[0].inner:
            return self._read(found[0], dtype)
        counts = [n + 1 for n in found[-1].inner]
        parts = np.stack([self._read(e, dtype) for e in found])
        return parts.reshape(*counts, *parts.shape[1:])

    def _read(self, entry: Entry, dtype: np.dtype[Any]) -> Tensor:
        with np.errstate(over="ignore"):  # becomes an infinity, which is reported
            value = self.file.read(entry.theirs)
            if entry.positions:
                value = value[: entry.their_shape[0]]
            if entry.axes and entry.is_part:
                value = entry.axes.part_of(value, entry.shape, entry.start)
            value = value.astype(dtype, copy=False)
        if not np.isfinite(value).all():
            raise fail(
                Code.WEIGHTS,
                f"`{entry.theirs}` in `{self.file.path}` holds numbers that are not finite in {dtype}",
                help="the training that wrote it diverged, or the file is damaged",
            )
        return entry.axes.to_ours(value, entry.shape) if entry.axes else value


def _prefix(family: Family, file: Checkpoint | Parts) -> str:
    """The prefix of the file, by the first tensor, which is its embedding."""
    theirs = family.tensors[0].theirs
    return next((p for p in family.prefixes if p + theirs in file.shapes), family.prefixes[0])


def _mistakes(
    expected: Iterable[Entry], file: Checkpoint | Parts, family: Family | None, prefix: str
) -> dict[str, list[str]]:
    """Names of the tensors that do not fit, by kind of mistake."""
    by_name = {e.theirs: e for e in expected}
    shared = [e for n, e in by_name.items() if n in file.shapes]
    shapes = [e.misfit(file.shapes[e.theirs]) for e in shared if not e.fits(file.shapes[e.theirs])]
    dtypes = [f"`{e.theirs}` {t}" for e in shared if (t := file.dtypes[e.theirs]) not in READABLE]
    surplus = [n for n in file.shapes if n not in by_name and not _is_unused(n, family, prefix)]
    mistakes = {
        "missing": [f"`{n}`" for n in by_name if n not in file.shapes],
        "not of this model": [f"`{n}`" for n in sorted(surplus)],
        "of another shape": shapes,
        f"not {', '.join(READABLE)}": dtypes,
    }
    return {kind: names for kind, names in mistakes.items() if names}


def _is_unused(name: str, family: Family | None, prefix: str) -> bool:
    """True if a file may have the tensor although no parameter needs it."""
    if family is None:
        return False
    return name == family.head or family.unused.fullmatch(name.removeprefix(prefix)) is not None


def _misfit(path: Path, mistakes: dict[str, list[str]], family: Family | None) -> CompileError:
    parts = []
    for kind, names in mistakes.items():
        rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        parts.append(f"{len(names)} {kind} ({', '.join(names[:_SHOWN])}{rest})")
    named = (
        f"is read under the names of the {family.name} family" if family else "belongs to no family of names"
    )
    return fail(
        Code.WEIGHTS,
        f"`{path}` does not fit the model: {'; '.join(parts)}",
        help=f"the model {named}; `wscc import` makes the model that a checkpoint's config.json describes",
    )


def _refuse_another_head(file: Checkpoint | Parts, head: str, embedding: str) -> None:
    """Raise W505 if the head in the file of a tied model is not the embedding, bit for bit."""
    if _equal(file.read(head), file.read(embedding)):
        return
    raise fail(
        Code.WEIGHTS,
        f"`{head}` in `{file.path}` is not `{embedding}`, and the model has no head of its own",
        help=f"declare `param {HEAD} : [d, vocab]` and write `@ {HEAD}` for `@ transpose({EMBEDDING})`",
    )


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    flat, other = a.reshape(-1), b.reshape(-1)
    return all(
        bool((flat[i : i + _PIECE] == other[i : i + _PIECE]).all()) for i in range(0, flat.size, _PIECE)
    )


def refuse_unsavable(parameters: Iterable[Parameter], model: str = "") -> None:
    """Raise the errors that `save` would raise of a model: before training, not after."""
    entries(parameters, model=model)


def save(
    path: Path, parameters: Iterable[Parameter], read: Callable[[str, Index], Tensor], model: str = "",
    ready: Callable[[Path], None] = lambda new: None,
) -> None:  # fmt: skip
    """Write every parameter of a model of that name to a file; `read(name, index)` gives one element of an array.
    `ready` is called with the whole new file, before it takes the place of the old one.

    W002 if it cannot be written. What `Weights` would refuse raises what it raises, and takes no file's place.
    """
    params = tuple(parameters)
    out: dict[str, Tensor] = {}
    for (ours, index), found in groupby(entries(params, model=model), lambda e: (e.ours, e.index)):
        element = read(ours, index)
        for e in found:
            _put(out, path, e, element[e.inner])

    def check(new: Path) -> None:
        _read_all(new, params, model)
        ready(new)

    write(path, out, check)


def _put(out: dict[str, Tensor], path: Path, e: Entry, value: Tensor) -> None:
    """Put our `value` into the tensors `out` of a file `path`."""
    if not np.isfinite(value).all():
        raise fail(
            Code.WEIGHTS, f"`{e.theirs}` holds what is no finite number: `{path}` is not written",
            help="save the weights of a step before training diverged",
        )  # fmt: skip
    theirs = e.axes.to_theirs(value) if e.axes else np.ascontiguousarray(value)
    if e.axes and e.is_part:
        whole = out.setdefault(e.theirs, np.empty(e.their_shape, value.dtype))
        e.axes.part_of(whole, e.shape, e.start)[...] = theirs
    else:
        out[e.theirs] = theirs


def _read_all(path: Path, parameters: tuple[Parameter, ...], model: str) -> None:
    """Read a file of weights to its end."""
    weights = Weights(path, parameters, model)
    for p in parameters:
        for index in np.ndindex(*p.extents):
            weights.read(p.name, index, p.type.dtype.numpy)
