"""Hypothesis strategies of valid modules at the graph and sharded level (fabric: `generate_fabric`).

Programs are random but well-formed: ops come from a table of example rules, operands are earlier values of the right
type or new arguments, calls bind arguments to arrays by random affine indices inside their extents.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.generate_header import Dice, header, lr_schedule
from wscc.ir.array import Array, Init, Kind, Relation, Role
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.op import Attr, GraphStmt, Op, Reshard, Stream, Value
from wscc.ir.ops import OPS
from wscc.ir.rule import Rule, parse_rule
from wscc.ir.step import Affine, Call, Loop, Ref, Stage
from wscc.ir.train import Rates
from wscc.ir.types import DType, Layout, Reduction, TensorType

# Example rules by op; `*` is replaced by up to two further factors, `#` marks what holds integers.
_ATTENTION: Final = ("b q@ h e!, b k~@ h e!, b k~@ h e!", "b q@ h g e!, b k~@ h e!, b k~@ h e!")
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "matmul": ("b s k, k n -> b s n", "b k, n k -> n b", "b s h e, h e n -> b s n", "b m k, b k n -> b m n"),
    "matmul_add": ("b k!, k! n, n -> b n", "b k!, k! n, b n -> b n"),
    "sum": ("b s d -> s d", "b s d -> d b", "b s -> "),
    **dict.fromkeys(
        ("add", "sub", "mul", "div"), ("b s d, b s d -> b s d", "b s d, d -> b s d", "s, b s -> b s")
    ),
    "partial_sum": ("b s, b s, b s -> b s", ", -> "),
    "split": ("b c! h -> b h, b h",),
    "stack": ("b h, b h -> b c! h",),
    "expand": ("b d -> b s d", "d -> b d"),
    "concat": ("s! d, b t! d -> b c! d", "b s! d -> b c! d"),
    "cut": ("b c! d -> b s! d, b t! d",),
    "attention": (f"{_ATTENTION[0]} -> b q h e, b q h, b q h", f"{_ATTENTION[1]} -> b q h g e, b q h g, b q h g"),
    "attention_bwd": (
        f"{_ATTENTION[0]}, b q h e, b q h, b q h, b q h e -> b q h e, b k h e, b k h e",
        f"{_ATTENTION[1]}, b q h g e, b q h g, b q h g, b q h g e -> b q h g e, b k h e, b k h e",
    ),
    "embedding": ("*#, v@ d -> * d",),
    "embedding_bwd": ("*#, * d -> v@ d",),
    "dropout": ("b s@, b# -> b s@", "b s@ d@, b# -> b s@ d@"),
    "pick": ("* v@, *# -> *",),
    "pick_bwd": ("*#, * -> * v@",),
    "zloss": ("*, *, *# -> *",),
    "zloss_bwd": ("*, *, *#, * -> *",),
    "nll": ("*, *, *, *# -> *",),
    "nll_bwd": ("*, *#, * -> *, *",),
    "count": ("*# -> ",),
    "route": ("b s! e! -> b s! k!, b s! k!#, e!, e!",),
    "route_bwd": ("b s! e!, b s! k!#, b s! k! -> b s! e!",),
    "dispatch": ("b s! d, b s! k!# -> e@ b c@ d",),
    "dispatch_bwd": ("e@ b c@ d, b s! k!# -> b s! d",),
    "combine": ("b s! k!, b s! k!#, e@ b c@ d -> b s! d",),
    "combine_bwd": ("b s! k!, b s! k!#, e@ b c@ d, b s! d -> b s! k!, e@ b c@ d",),
    "spmm": ("e! c!#, b m~@ d -> b n@ d",),
    "spmm_bwd": ("e! c!#, b n@ d -> b m~@ d",),
    "edge_attention": ("e! c!#, b n@ h, b m! h, b m! h f -> b n@ h f",),
    "edge_attention_bwd": ("e! c!#, b n@ h, b m! h, b m! h f, b n@ h f -> b n@ h, b m! h, b m! h f",),
    "edge_max": ("e! c!#, b m! d -> b n@ d",),
    "edge_max_bwd": ("e! c!#, b m! d, b n@ d -> b m! d",),
    "edge_sum": ("e! c!#, b m! d, e! -> b n@ d",),
    "edge_sum_bwd": ("e! c!#, b m! d, e!, b n@ d -> b m! d, e!",),
    "tick": ("# -> #",),
    "adamw": ("*, *, *, *, , # -> *, *, *",),
    "sgd": ("*, *, , # -> *",),
}  # fmt: skip
_SIZES: Final = (1, 2, 4, 8)


@dataclass(slots=True)
class Body:
    """A procedure under construction."""

    dice: Dice
    axes: dict[str, int] | None
    values: list[Value] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    ops: list[GraphStmt] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def value(self, kind: TensorType) -> Value:
        """A value of the type with a new name."""
        name = self.dice.name(self.used)
        self.used.add(name)
        value = Value(name, kind)
        self.values.append(value)
        return value

    def operand(self, kind: TensorType) -> Value:
        """An earlier value of the type, or a new argument."""
        fitting = [v for v in self.values if v.type == kind]
        if fitting and self.dice.coin():
            return self.dice.choice(fitting)
        return self.argument(kind)

    def argument(self, kind: TensorType) -> Value:
        value = self.value(kind)
        self.inputs.append(value)
        return value

    def add_op(self) -> None:
        kind = self.dice.choice(sorted(OPS))
        rule, integers = self._rule(kind)
        sizes = {f: self.dice.choice(_SIZES) for f in rule.factors}
        attrs = {k: self.dice.scalar(kind, k, t) for k, t in OPS[kind].attrs.items()}
        if "warmup" in attrs:
            attrs |= asdict(lr_schedule(self.dice))
        if kind in ("split", "stack"):
            whole = rule.ins[0] if kind == "split" else rule.outs[0]
            attrs["dim"] = whole.index("c")
            sizes["c"] = 2
        if kind in ("concat", "cut"):
            attrs["dim"] = 1
            sizes["c"] = sum(sizes.get(f, 0) for f in "st") + self.dice.choice((0, 1))
        floats = self.dice.choice((DType.F64, DType.F32, DType.BF16))
        ins = [] if kind == "fill" else list(rule.ins)
        layouts = self._layouts(kind, rule, sizes, attrs)
        types = [
            TensorType(tuple(sizes[f] for f in term), DType.I32 if i in integers else floats, layout)
            for i, (term, layout) in enumerate(
                zip((*ins, *rule.outs), layouts[len(layouts) - len(ins) - len(rule.outs) :], strict=True)
            )
        ]
        operands = tuple(self.operand(t) for t in types[: len(ins)])
        results = tuple(self.value(t) for t in types[len(ins) :])
        origin = self.dice.choice(("", self.dice.name()))
        self.ops.append(Op(kind, operands, results, rule, tuple(attrs.items()), None, origin))
        if self.axes is not None:
            self._maybe_stream()

    def _rule(self, kind: str) -> tuple[Rule, set[int]]:
        """A rule of the op, and the places of integers among its operands and results (numbered as one list)."""
        text = self.dice.choice(EXAMPLES.get(kind, (OPS[kind].rule,)))
        star = self.dice.choice(("", "x", "x y"))
        words = text.replace("*", star)
        terms = words.replace("->", ",").split(",")
        return parse_rule(words.replace("#", "")), {i for i, t in enumerate(terms) if "#" in t}

    # -- layouts: a random assignment of axes to factors ------------------------------------------------

    def _layouts(
        self, kind: str, rule: Rule, sizes: dict[str, int], attrs: dict[str, Attr]
    ) -> list[Layout | None]:
        """The layout of each operand and result; results without a split factor are partial over its axes."""
        terms = (*rule.ins, *rule.outs)
        if self.axes is None:
            return [None] * len(terms)
        split: dict[str, tuple[str, ...]] = {f: () for f in rule.factors}
        spare = []
        for axis, n in self.axes.items():
            candidates = [
                f for f in rule.factors if rule.may_split(f) and sizes[f] % (n * self._parts(split[f])) == 0
            ]
            factor = self.dice.choice([None, *candidates])
            if factor is None:
                spare.append(axis)
            else:
                split[factor] = (*split[factor], axis)
        passing: dict[str, Reduction] = {}
        if OPS[kind].linear and spare and self.dice.coin():
            passing = {spare[0]: Reduction.SUM}
        layouts = [Layout(tuple(split[f] for f in t)).with_partial(passing) for t in rule.ins]
        for term in rule.outs:
            lacking = {a: OPS[kind].combine for f, axes in split.items() if f not in term for a in axes}
            layouts.append(Layout(tuple(split[f] for f in term)).with_partial({**passing, **lacking}))
        return layouts

    def _parts(self, axes: tuple[str, ...]) -> int:
        assert self.axes is not None
        return prod(self.axes[a] for a in axes)

    def _maybe_stream(self) -> None:
        """Turn the last op into a stream over an axis that splits nothing of it, with one operand moving."""
        op = self.ops[-1]
        assert isinstance(op, Op)
        assert self.axes is not None
        used = {a for v in (*op.operands, *op.results) for a in v.type.layout.axes}
        used |= {a for v in (*op.operands, *op.results) for a, _ in v.type.layout.partial}
        for axis, n in self.axes.items():
            for i, (v, term) in enumerate(zip(op.operands, op.rule.ins, strict=False)):
                for d, f in enumerate(term):
                    fits = (
                        f not in op.rule.whole
                        and v.type.shape[d] // self._parts(v.type.layout.dims[d]) % n == 0
                    )
                    fits = fits and OPS[op.kind].combine is Reduction.SUM and axis not in used
                    if fits and self.dice.coin():
                        dims = tuple((*a, axis) if e == d else a for e, a in enumerate(v.type.layout.dims))
                        moved = self.argument(v.type.with_layout(Layout(dims, v.type.layout.partial)))
                        operands = (*op.operands[:i], moved, *op.operands[i + 1 :])
                        self.ops[-1] = Op(
                            op.kind, operands, op.results, op.rule, op.attrs, Stream(axis, f, (i,)), op.origin
                        )
                        return

    def add_reshard(self) -> None:
        """Append a reshard of one value, if any is possible."""
        assert self.axes is not None
        candidates = []
        for v in self.values:
            candidates += [(v, *step) for step in _reshards(v.type, self.axes)]
        if not candidates:
            return
        v, kind, axis, layout, fields = self.dice.choice(candidates)
        self.ops.append(Reshard(kind, axis, v, self.value(v.type.with_layout(layout)), **fields))

    def procedure(self, name: str) -> Procedure:
        returned = self.dice.choices(self.values, k=self.dice.randint(0, 4))
        outputs = tuple(Output(v, self.dice.choice(list(Mode))) for v in returned)
        return Procedure(name, tuple(self.inputs), outputs, tuple(self.ops))


def _reshards(kind: TensorType, sizes: dict[str, int]) -> list[tuple[str, str, Layout, dict[str, Any]]]:
    """Every (kind, axis, layout of the result, fields) of a reshard of the type."""
    layout, reshards = kind.layout, []
    assert layout is not None
    partial = dict(layout.partial)

    def changed(dims: dict[int, tuple[str, ...]], parts: dict[str, Reduction]) -> Layout:
        return Layout(tuple(dims.get(d, a) for d, a in enumerate(layout.dims))).with_partial(parts)

    for axis, n in sizes.items():
        without = {a: k for a, k in partial.items() if a != axis}
        divisible = [
            d for d, a in enumerate(layout.dims) if kind.shape[d] % (n * prod(sizes[x] for x in a)) == 0
        ]
        if axis in partial:
            reshards.append(("all_reduce", axis, changed({}, without), {"reduction": partial[axis]}))
            if partial[axis] is Reduction.SUM:
                for d in divisible:
                    after = changed({d: (*layout.dims[d], axis)}, without)
                    reshards.append(("reduce_scatter", axis, after, {"dim": d}))
        elif (d := layout.dim_of(axis)) is None:
            reshards.append(("mask", axis, changed({}, {**partial, axis: Reduction.SUM}), {}))
            for d in divisible:
                reshards.append(("slice", axis, changed({d: (*layout.dims[d], axis)}, partial), {"dim": d}))
        elif layout.dims[d][-1] == axis:
            opened = layout.dims[d][:-1]
            reshards.append(("all_gather", axis, changed({d: opened}, partial), {"dim": d}))
            for to in divisible:
                if to != d:
                    after = changed({d: opened, to: (*layout.dims[to], axis)}, partial)
                    reshards.append(("all_to_all", axis, after, {"dim": d, "to": to}))
    return reshards


# ------------------------------------------------------------------------------------------------- the step


_ROLES: Final = {
    Kind.GRAD: (Role.GRADIENT,),
    Kind.CARRIED: (Role.GRADIENT,),
    Kind.STATE: (Role.MOMENT,),
    Kind.COMPUTE_COPY: (Role.COPY,),
}


@dataclass(slots=True)
class Calls:
    """The arrays of a module, to which its calls bind arguments."""

    dice: Dice
    axes: dict[str, int]
    arrays: list[Array] = field(default_factory=list)

    def call(self, procedure: Procedure, loops: dict[str, int]) -> Call:
        written: set[str] = set()
        args = [self._ref(v, loops, written) for v in procedure.inputs]
        for out in procedure.outputs:
            args.append(self._ref(out.value, loops, written))
            written.add(args[-1].array)
        return Call(procedure.name, tuple(args))

    def _ref(self, value: Value, loops: dict[str, int], written: set[str]) -> Ref:
        fitting = [a for a in self.arrays if a.type == value.type and a.name not in written]
        array = self.dice.choice(fitting) if fitting and self.dice.coin() else self._array(value)
        return Ref(array.name, tuple(self._index(n, loops) for n in array.extents))

    def _array(self, value: Value) -> Array:
        used = {a.name for a in self.arrays}
        extents = [self.dice.randint(1, 6) for _ in range(self.dice.randint(0, 2))]
        init = Init(self.dice.choice(("zeros", "ones", "normal")), self.dice.choice((0.0, 0.02, 1e-9)))
        like = [
            a for a in self.arrays if a.type == value.type and a.extents == tuple(extents) and not a.storage
        ]
        storage = self.dice.choice(["", *(a.name for a in like)])
        name = self.dice.name(used)
        # Inputs agree with the training, which is drawn elsewhere.
        kind = self.dice.choice([k for k in Kind if k is not Kind.INPUT])
        rates = self.dice.record(Rates) if kind is Kind.PARAM and self.dice.coin() else None
        relation = self._relation(value, kind)
        order = self._order(value.type)
        self.arrays.append(
            Array(name, value.type, kind, tuple(extents), init, storage, relation=relation, rates=rates, zigzag=order)
        )  # fmt: skip
        return self.arrays[-1]

    def _order(self, kind: TensorType) -> tuple[int, ...]:
        """Dimensions that may lie in zigzag along the first axis that splits them."""
        dims = kind.layout.dims if kind.layout else ()
        led = [(d, self.axes[axes[0]]) for d, axes in enumerate(dims) if axes]
        return tuple(d for d, n in led if kind.shape[d] % (2 * n) == 0 and self.dice.coin())

    def _relation(self, value: Value, kind: Kind) -> Relation | None:
        others = [a.name for a in self.arrays if a.type == value.type]
        roles = [Role.PARTIAL, *_ROLES.get(kind, ())]
        return (
            Relation(self.dice.choice(roles), self.dice.choice(others))
            if others and self.dice.coin()
            else None
        )

    def _index(self, extent: int, loops: dict[str, int]) -> Affine:
        """An index inside the extent: a constant, a short loop forwards or backwards, or anything modulo the extent."""
        short = [v for v, n in loops.items() if n <= extent]
        form = self.dice.choice(["constant", "modulus", *["forward", "backward"] * bool(short)])
        if form == "constant":
            return Affine(self.dice.randint(0, extent - 1))
        if form == "modulus":
            variables = self.dice.sample(sorted(loops), self.dice.randint(0, len(loops)))
            terms = tuple((v, self.dice.randint(-3, 3)) for v in variables)
            return Affine(self.dice.randint(-9, 9), terms, extent)
        v = self.dice.choice(short)
        slack = self.dice.randint(0, extent - loops[v])
        return Affine(slack, ((v, 1),)) if form == "forward" else Affine(loops[v] - 1 + slack, ((v, -1),))


def _writes_once(call: Call, arrays: list[Array], inputs: int) -> bool:
    owner = {a.name: a.storage or a.name for a in arrays}
    written = [(owner[r.array], r.index) for r in call.args[inputs:]]
    return len(set(written)) == len(written)


def modules(level: Level = Level.GRAPH) -> st.SearchStrategy[Module]:
    """Modules of up to three procedures of up to five ops, that verify."""
    return st.builds(module, st.just(level), st.integers(1, 15), st.integers(0, 1 << 32))


def module(level: Level, ops: int, seed: int) -> Module:
    d = Dice(seed)
    empty = header(d, level)
    axes = dict(empty.axes) if level is Level.SHARDED else None
    calls, procedures, step = Calls(d, dict(empty.axes)), [], []
    for i in range(-(-ops // 5)):
        body = Body(d, axes)
        for _ in range(min(ops, 5)):
            body.add_op()
            if axes and d.coin():
                body.add_reshard()
        procedures.append(body.procedure(f"{d.name()}.{i}"))
        step.append(in_loops(d, calls, procedures[-1]))
    whole = empty.with_(
        arrays=tuple(calls.arrays), procedures=tuple(procedures), step=tuple(s for s in step if s)
    )
    return in_stages(d, whole) if d.coin() else whole


def in_stages(d: Dice, m: Module) -> Module:
    """The module with its statements distributed to stages, and arrays on one stage or parts of other arrays."""
    stages = d.choice([n for n in (1, 2, 3) if m.dies_used % n == 0])
    bodies: list[list[Call | Loop]] = [[] for _ in range(stages)]
    for stmt in m.step:
        assert not isinstance(stmt, Stage)
        d.choice(bodies).append(stmt)
    arrays = tuple(
        replace(a, stage=d.randint(-1, stages - 1), of=of, first=d.randint(0, 9) if of else 0)
        for a in m.arrays
        if (of := d.choice(["", d.name()])) is not None
    )
    return m.with_(arrays=arrays, step=tuple(Stage(i, tuple(s)) for i, s in enumerate(bodies)))


def in_loops(d: Dice, calls: Calls, procedure: Procedure) -> Call | Loop | None:
    """A call in up to two loops; None if it would write an element twice."""
    loops: dict[str, int] = {}
    for _ in range(d.randint(0, 2)):
        loops[d.name(loops)] = d.randint(1, 6)
    call = calls.call(procedure, loops)
    if not _writes_once(call, calls.arrays, len(procedure.inputs)):
        return None
    stmt: Call | Loop = call
    for variable, count in reversed(loops.items()):
        stmt = Loop(variable, count, (stmt,))
    return stmt
