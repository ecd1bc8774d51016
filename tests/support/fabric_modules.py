"""Small random fabric modules: valid by the rules of `lower_collectives`, and otherwise as unusual as possible.

Views are strided and differ by die, arguments share bytes, groups interleave, slots are reused, collectives run in
place. A local is never read before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Buffer, FabricStmt, Kernel, Transfer
from wscc.ir.module import Level, Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.per_die import NOBODY, Ints, at, per_die
from wscc.ir.step import Affine, Call, Loop, Ref
from wscc.ir.train import Train
from wscc.ir.types import DType, Layout, TensorType
from wscc.ir.views import View
from wscc.machine.wafer import Wafer

ELEMENTS = 24
DTYPE = DType.F64
_TYPE = TensorType((ELEMENTS,), DTYPE, Layout.whole(1))


@dataclass(frozen=True)
class Case:
    """A random module, given by a few integers so that a failing one is short to print."""

    dies: int
    procedures: int
    length: int
    seed: int

    @property
    def module(self) -> Module:
        """The module at the fabric level, placed, not yet phased."""
        return random_module(Random(self.seed), self.dies, self.procedures, self.length)


# Details come from the seed, which is far quicker than a draw for each; Hypothesis shrinks the sizes.
CASES = st.builds(Case, st.integers(1, 6), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**32))
some = settings(deadline=None, max_examples=25)


def random_module(rng: Random, dies: int, procedures: int, length: int) -> Module:
    wafer = _wafer(rng, dies)
    live = [r * wafer.cols + c for r in range(wafer.rows) for c in range(wafer.cols)]
    live = [d for d in live if divmod(d, wafer.cols) not in wafer.dead_dies]
    arrays = _arrays(rng)
    generated, step = [], []
    for n in range(procedures):
        inputs, outputs = _arguments(rng)
        args = _args(rng, arrays, inputs, outputs)
        generated.append(_Body(rng, dies, inputs, outputs, args).procedure(f"p{n}", length))
        call = Call(f"p{n}", tuple(args[v] for v in (*inputs, *outputs)))
        step.append(Loop("i", rng.choice([1, 3]), (call,)))
    if rng.random() < 0.5:
        step = [Loop("j", 2, tuple(step))]
    return Module(
        "random",
        Level.FABRIC,
        (("a", dies),),
        Train(batch=dies, microbatches=1),
        wafer,
        arrays,
        tuple(generated),
        tuple(step),
        dies=tuple(rng.sample(live, dies)),
    )


def module_of(dies: int, body: Sequence[FabricStmt], *, slots: int = 0) -> Module:
    """One procedure from `in0` to `out0` with locals t0, t1, t2 (some of them slots), on a row of dies."""
    buffers = tuple(Buffer(f"t{i}", ELEMENTS, DTYPE, slot=i < slots) for i in range(3))
    procedure = Procedure("p", (Value("in0", _TYPE),), (Output(Value("out0", _TYPE)),), tuple(body), buffers)
    return Module(
        "m",
        Level.FABRIC,
        (("a", dies),),
        Train(batch=dies, microbatches=1),
        Wafer("w", 1, dies),
        (Array("x", _TYPE, Kind.INPUT), Array("y", _TYPE, Kind.CARRIED)),
        (procedure,),
        (Call("p", (Ref("x"), Ref("y"))),),
        dies=tuple(range(dies)),
    )


def _wafer(rng: Random, dies: int) -> Wafer:
    rows, cols = rng.choice([(1, dies), (2, (dies + 3) // 2), (3, max(2, dies // 2 + 1))])
    dead: frozenset[tuple[int, int]] = frozenset()
    # A corner never cuts a mesh with two rows and columns in two.
    if min(rows, cols) > 1 and rows * cols > dies and rng.random() < 0.5:
        dead = frozenset([(0, 0)])
    return Wafer("w", rows, cols, dead_dies=dead)


def _arrays(rng: Random) -> tuple[Array, ...]:
    arrays: list[Array] = []
    for n in range(rng.randint(2, 4)):
        extents = rng.choice([(), (3,), (2, 2)])
        storage = rng.choice([a.name for a in arrays if a.extents == extents and not a.storage] + [""] * 2)
        arrays.append(Array(f"a{n}", _TYPE, rng.choice(list(Kind)), extents, storage=storage))
    return tuple(arrays)


def _arguments(rng: Random) -> tuple[list[str], list[str]]:
    inputs = [f"in{i}" for i in range(rng.randint(1, 2))]
    outputs = [f"out{i}" for i in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        outputs[0] = inputs[0]
    return inputs, outputs


def _args(rng: Random, arrays: tuple[Array, ...], inputs: list[str], outputs: list[str]) -> dict[str, Ref]:
    def index(extent: int) -> Affine:
        return Affine(rng.randrange(2 * extent), (("i", 1),) if rng.random() < 0.7 else (), extent)

    refs = {}
    for name in (*inputs, *outputs):
        array = rng.choice(arrays)
        refs[name] = Ref(array.name, tuple(index(n) for n in array.extents))
    return refs


@dataclass
class _Body:
    """A growing body of one procedure; `written[b]`: mask of the written elements of buffer b, [dies, elements]."""

    rng: Random
    dies: int
    inputs: list[str]
    outputs: list[str]
    args: dict[str, Ref]
    stmts: list[FabricStmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    written: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    channel: int = 0

    def procedure(self, name: str, length: int) -> Procedure:
        for argument in (*self.inputs, *self.outputs):
            self.written[argument] = np.ones((self.dies, ELEMENTS), np.bool_)
        for _ in range(self.rng.randint(0, 4)):
            self.local()
        for _ in range(length):
            self.rng.choice(
                [self.kernel, self.kernel, self.gemm, self.transfer, self.transfer, self.gather, self.stream]
            )()
        inputs = tuple(Value(v, _TYPE) for v in self.inputs)
        outputs = tuple(Output(Value(v, _TYPE)) for v in self.outputs)
        return Procedure(name, inputs, outputs, tuple(self.stmts), tuple(self.buffers))

    def local(self, slot: bool = False) -> str:
        name = f"t{len(self.buffers)}"
        self.buffers.append(Buffer(name, ELEMENTS, DTYPE, slot=slot))
        self.written[name] = np.zeros((self.dies, ELEMENTS), np.bool_)
        return name

    # -- views

    def view(self, buffer: str, shape: tuple[int, ...]) -> View:
        """A view of this shape at a random offset in the buffer, often another one on each die."""
        strides = [1] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            strides[d] = strides[d + 1] * shape[d + 1]
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if len(shape) == 2 and shape[0] > 1:
            room = (ELEMENTS - shape[1]) // (shape[0] - 1)
            strides[0] = self.rng.randint(strides[0], max(strides[0], room))
            extent = (shape[0] - 1) * strides[0] + shape[1]
        last = ELEMENTS - extent
        offset: Ints = self.rng.randint(0, last)
        if self.rng.random() < 0.4:
            offset = per_die(self.rng.randint(0, last) for _ in range(self.dies))
        return View(buffer, offset, shape, tuple(strides), DTYPE)

    def source(self, shape: tuple[int, ...], where: Ints) -> View:
        """A view to read: of a buffer where that is written, else of an input."""
        for _ in range(4):
            view = self.view(self.rng.choice(list(self.written)), shape)
            if self.rng.random() < 0.1:
                view = View(view.buffer, view.offset, shape, (0,) * len(shape), DTYPE)
            if self.is_written(view, where):
                return view
        return self.view(self.inputs[0], shape)

    def target(self, shape: tuple[int, ...]) -> View:
        choices = [*self.outputs, *(b.name for b in self.buffers)]
        return self.view(self.rng.choice(choices), shape)

    def is_written(self, view: View, where: Ints) -> bool:
        return all(
            self.written[view.buffer][d, elements(view, d)].all() for d in range(self.dies) if at(where, d)
        )

    def write(self, view: View, where: Ints) -> None:
        for d in range(self.dies):
            if at(where, d):
                self.written[view.buffer][d, elements(view, d)] = True

    def shape(self) -> tuple[int, ...]:
        return self.rng.choice([(1,), (3,), (8,), (ELEMENTS,), (2, 3), (4, 2), (3, 4)])

    # -- statements

    def kernel(self) -> None:
        where: Ints = 1
        if self.rng.random() < 0.3:
            where = per_die(self.rng.randint(0, 1) for _ in range(self.dies))
        shape, opcode = self.shape(), self.rng.choice(["copy", "add", "scale", "fill"])
        count = {"copy": 1, "add": 2, "scale": 1, "fill": 0}[opcode]
        attrs = {"scale": (("factor", 0.5),), "fill": (("value", 3.0),)}.get(opcode, ())
        target = self.target(shape)
        reads = tuple(self.disjoint_or_equal(self.source(shape, where), target) for _ in range(count))
        self.stmts.append(Kernel(opcode, (target,), reads, attrs, where))
        self.write(target, where)

    def disjoint_or_equal(self, read: View, target: View) -> View:
        """The view, or one of other memory if it overlaps the target but differs: elementwise kernels may work in
        place, but not on a shifted view of what they write."""
        return (
            self.view(self.spare(target), read.shape)
            if self.may_alias(read, target) and read != target
            else read
        )

    def gemm(self) -> None:
        m, n, k = (self.rng.randint(1, 3) for _ in range(3))
        target = self.target((m, n))
        accumulate = self.is_written(target, 1)
        reads = tuple(self.disjoint_or_equal(self.source(s, 1), target) for s in ((m, k), (k, n)))
        if target in reads:
            return
        attrs = (("scale", 0.25), ("accumulate", accumulate))
        self.stmts.append(Kernel("gemm", (target,), reads, attrs))
        self.write(target, 1)

    def spare(self, target: View) -> str:
        """An input that does not alias the target, or a fresh local filled with a constant."""
        for name in self.inputs:
            if not self.may_alias(View(name, 0, (), (), DTYPE), target):
                return name
        name = self.local()
        whole = View(name, 0, (ELEMENTS,), (1,), DTYPE)
        self.stmts.append(Kernel("fill", (whole,), (), (("value", 2.0),)))
        self.write(whole, 1)
        return name

    def may_alias(self, a: View, b: View) -> bool:
        """Whether two views may share bytes, by a conservative rule."""
        return a.buffer == b.buffer or (a.buffer in self.args and b.buffer in self.args)

    def transfer(self) -> None:
        to = self.permutation()
        if to == NOBODY:
            return
        senders = per_die(int(at(to, d) != NOBODY) for d in range(self.dies))
        shape = self.shape()
        write = self.target(shape)
        read = self.source(shape, senders)
        if self.may_alias(read, write):
            read = self.view(self.spare(write), shape)
        self.send(to, read, write, self.rng.choice(["", "g", "h"]))

    def send(self, to: Ints, read: View, write: View, group: str) -> None:
        stmt = Transfer(self.channel, to, read, write, group)
        self.channel += 1
        self.stmts.append(stmt)
        receivers = {receiver for _, receiver in stmt.pairs(self.dies)}
        self.write(write, per_die(int(d in receivers) for d in range(self.dies)))

    def permutation(self) -> Ints:
        n, kind = self.dies, self.rng.randrange(4)
        shift = self.rng.randrange(n)
        ring = [(i + shift) % n for i in range(n)]
        chain = [i + 1 if i + 1 < n else NOBODY for i in range(n)]
        swap = [i ^ 1 if (i ^ 1) < n else NOBODY for i in range(n)]
        some = [j if self.rng.random() < 0.5 else NOBODY for j in self.rng.sample(range(n), n)]
        chosen = [ring, chain, swap, some][kind]
        return per_die(NOBODY if j == i else j for i, j in enumerate(chosen))

    def gather(self) -> None:
        """Append an all-gather in place round a ring, with kernels between the rounds."""
        n, buffer = self.dies, self.local()
        size = ELEMENTS // n

        def part(back: int) -> View:
            return View(buffer, per_die((i - back) % n * size for i in range(n)), (size,), (1,), DTYPE)

        self.stmts.append(Kernel("copy", (part(0),), (self.source((size,), 1),)))
        self.write(part(0), 1)
        ring = per_die((i + 1) % n for i in range(n))
        for t in range(n - 1):
            self.send(ring, part(t), part(t + 1), f"gather.{buffer}")
            if self.rng.random() < 0.5:
                self.kernel()

    def stream(self) -> None:
        """Append a stream: a shard goes round a ring through two slots, and is used and relayed on each die."""
        n = self.dies
        slots = [self.local(slot=True) for _ in range(2)]
        read = self.source((8,), 1)
        ring = per_die((i + 1) % n for i in range(n))
        for t in range(n - 1):
            write = View(slots[t % 2], 0, (8,), (1,), DTYPE)
            self.send(ring, read, write, f"stream.{slots[0]}")
            target = self.target((8,))
            if not self.may_alias(target, read):
                reads = (read, read)
                self.stmts.append(Kernel("add", (target,), reads))
                self.write(target, 1)
            read = write


def elements(view: View, die: int) -> NDArray[np.intp]:
    """The positions in the buffer of the elements of a view on a die, in the shape of the view."""
    index = np.full(view.shape, at(view.offset, die), np.intp)
    for d, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        shape = [1] * len(view.shape)
        shape[d] = n
        index = index + (np.arange(n) * stride).reshape(shape)
    assert index.size == prod(view.shape)
    return index
