"""Small forward modules built by hand: GPT and Llama of two blocks, and what the tests do with them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wscc.ir import construct as nn
from wscc.ir.array import Array, Init, Kind
from wscc.ir.builder import Builder
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Loop, Ref
from wscc.ir.train import LrSchedule, Optimizer, Train
from wscc.ir.types import DType, TensorType
from wscc.machine.wafer import Wafer
from wscc.strategy import mesh_axes

NORMAL, ONES, ZEROS = Init("normal", 0.3), Init("ones"), Init("zeros")
MB, LAYER = Affine(0, (("mb", 1),)), Affine(0, (("l", 1),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`batch` is the whole batch; `calls` its micro-batches."""

    batch: int = 8
    calls: int = 2
    seq: int = 8
    d: int = 16
    heads: int = 4
    kv: int = 2
    ffn: int = 32
    vocab: int = 32
    layers: int = 2


@dataclass(slots=True)
class Draft:
    """A module in the making."""

    shape: Shape
    dtype: DType
    arrays: list[Array] = field(default_factory=list)
    procedures: list[Procedure] = field(default_factory=list)

    def array(
        self, name: str, shape: tuple[int, ...], kind: Kind, extents: tuple[int, ...] = (), init: Init = ZEROS,
        dtype: DType | None = None,
    ) -> Array:  # fmt: skip
        made = Array(name, TensorType(shape, dtype or self.dtype), kind, extents, init)
        self.arrays.append(made)
        return made


class Part:
    """One segment: a builder, its arguments and the array each is bound to."""

    def __init__(self, draft: Draft, name: str, layers: int = 0) -> None:
        self.draft, self.name, self.layers = draft, name, layers
        self.b = Builder()
        self.inputs: list[Value] = []
        self.refs: list[Ref] = []

    def bind(self, array: Array, *index: Affine, name: str = "") -> Value:
        value = self.b.input(name or array.name, array.type)
        self.inputs.append(value)
        self.refs.append(Ref(array.name, index))
        return value

    def param(self, name: str, *shape: int, init: Init = NORMAL) -> Value:
        if not self.layers:
            return self.bind(self.draft.array(name, shape, Kind.PARAM, init=init))
        array = self.draft.array(f"{self.name}.{name}", shape, Kind.PARAM, (self.layers,), init)
        return self.bind(array, LAYER, name=name)

    def close(self, value: Value, ref: Ref, mode: Mode = Mode.WRITE) -> Call:
        self.draft.procedures.append(
            Procedure(self.name, tuple(self.inputs), (Output(value, mode),), tuple(self.b.ops))
        )
        return Call(self.name, (*self.refs, ref))


def _inputs(d: Draft, dp: int) -> tuple[Array, Array, Array]:
    s = d.shape
    rows = (s.batch // s.calls, s.seq)
    tokens = d.array("tokens", rows, Kind.INPUT, (s.calls,), dtype=DType.I32)
    labels = d.array("labels", rows, Kind.INPUT, (s.calls,), dtype=DType.I32)
    d.array("loss", (), Kind.SCALAR, dtype=d.dtype.accumulator)
    count = d.array("count", (), Kind.SCALAR, dtype=d.dtype.accumulator)
    b = Builder()
    zeros = [
        b.one("fill", [], " -> ", dtypes=[d.dtype.accumulator], attrs={"value": 0.0}, hints=[n])
        for n in ("loss", "count")
    ]
    d.procedures.append(Procedure("start", (), tuple(map(Output, zeros)), tuple(b.ops)))
    b = Builder()
    given = b.input("labels", labels.type)
    n = b.one("count", [given], "b s -> ", dtypes=[d.dtype.accumulator])
    d.procedures.append(Procedure("prepare", (given,), (Output(n, Mode.ADD),), tuple(b.ops)))
    return tokens, labels, count


def _finish(
    d: Draft, chain: tuple[Call | Loop, ...], degrees: dict[str, int], train: Train, wafer: Wafer
) -> Module:
    calls = d.shape.calls
    prepare = Call("prepare", (Ref("labels", (MB,)), Ref("count")))
    step = (
        Call("start", (Ref("loss"), Ref("count"))),
        Loop("mb", calls, (prepare,)),
        Loop("mb", calls, chain),
    )
    return Module(
        "tiny", Level.GRAPH, mesh_axes(degrees), train, wafer, tuple(d.arrays), tuple(d.procedures), step
    )


def _head(d: Draft, x: Array, labels: Array, count: Array, norm: str, tied: Array | None) -> Call:
    s = d.shape
    h = Part(d, "head")
    given = h.bind(x, Affine(s.layers))
    target, n = h.bind(labels, MB), h.bind(count)
    gains = [h.param("gf", s.d, init=ONES)] + ([h.param("bf", s.d)] if norm == "layernorm" else [])
    weight = h.bind(tied) if tied else h.param("head", s.d, s.vocab)
    out = nn.matmul(h.b, nn.norm(h.b, norm, given, *gains), weight, transposed=tied is not None)
    return h.close(nn.cross_entropy(h.b, out, target, n), Ref("loss"), Mode.ADD)


def _training(shape: Shape, dtype: DType, options: dict[str, object]) -> Train:
    optimizer = Optimizer(str(options.get("optimizer", "adamw")), lr=0.01)
    return Train(
        batch=shape.batch, microbatches=shape.calls, optimizer=optimizer, lr_schedule=LrSchedule(warmup=2),
        clip=float(str(options.get("clip", 1.0))), compute=dtype, params=dtype, grads=dtype,
        recompute=str(options.get("recompute", "none")), zero=int(str(options.get("zero", 0))),
        interleave=int(str(options.get("interleave", 1))), stages=tuple(options.get("stages", ())),  # type: ignore[arg-type]
    )  # fmt: skip


def gpt(
    degrees: dict[str, int] | None = None, shape: Shape = Shape(), *, dtype: DType = DType.F64,
    wafer: Wafer | None = None, **options: object,
) -> Module:  # fmt: skip
    """LayerNorm, biases, learned positions, tanh GELU, tied head."""
    s, d = shape, Draft(shape, dtype)
    tokens, labels, count = _inputs(d, (degrees or {}).get("dp", 1))
    embed = Part(d, "embed")
    ids, wte, wpe = embed.bind(tokens, MB), embed.param("wte", s.vocab, s.d), embed.param("wpe", s.seq, s.d)
    x0 = nn.binary(embed.b, "add", nn.embedding(embed.b, ids, wte), wpe)
    x = d.array("x", (s.batch // s.calls, s.seq, s.d), Kind.CARRIED, (s.layers + 1,))
    first = embed.close(x0, Ref("x", (Affine(0),)))

    p = Part(d, "block", s.layers)
    b, e = p.b, s.d // s.heads
    given = p.bind(x, LAYER)

    def biased(value: Value, name: str, *dims: int) -> Value:
        return nn.binary(b, "add", value, p.param(name, *dims))

    h = nn.norm(b, "layernorm", given, p.param("g1", s.d, init=ONES), p.param("b1", s.d))
    qkv = biased(nn.project(b, h, p.param("wqkv", s.d, 3, s.heads, e)), "bqkv", 3, s.heads, e)
    q, k, v = nn.split(b, qkv, 3, hints=["q", "k", "v"])
    o = nn.attention(b, q, k, v, causal=True)
    mid = nn.binary(b, "add", given, biased(nn.project(b, o, p.param("wo", s.heads, e, s.d)), "bo", s.d))
    h = nn.norm(b, "layernorm", mid, p.param("g2", s.d, init=ONES), p.param("b2", s.d))
    u = nn.elementwise(b, "gelu", biased(nn.project(b, h, p.param("w1", s.d, s.ffn)), "c1", s.ffn))
    out = nn.binary(b, "add", mid, biased(nn.project(b, u, p.param("w2", s.ffn, s.d)), "c2", s.d))
    block = p.close(out, Ref("x", (Affine(1, (("l", 1),)),)))
    head = _head(d, x, labels, count, "layernorm", next(a for a in d.arrays if a.name == "wte"))
    train = _training(s, dtype, options)
    chain = (first, Loop("l", s.layers, (block,)), head)
    return _finish(d, chain, degrees or {}, train, wafer or Wafer("w", 2, 4))


def llama(
    degrees: dict[str, int] | None = None, shape: Shape = Shape(), *, dtype: DType = DType.F64,
    wafer: Wafer | None = None, **options: object,
) -> Module:  # fmt: skip
    """RMSNorm, rotary positions, grouped-query attention, SwiGLU, untied head."""
    s, d = shape, Draft(shape, dtype)
    tokens, labels, count = _inputs(d, (degrees or {}).get("dp", 1))
    embed = Part(d, "embed")
    x0 = nn.embedding(embed.b, embed.bind(tokens, MB), embed.param("wte", s.vocab, s.d))
    x = d.array("x", (s.batch // s.calls, s.seq, s.d), Kind.CARRIED, (s.layers + 1,))
    first = embed.close(x0, Ref("x", (Affine(0),)))

    p = Part(d, "block", s.layers)
    b, e, g = p.b, s.d // s.heads, s.heads // s.kv
    given = p.bind(x, LAYER)
    h = nn.norm(b, "rmsnorm", given, p.param("g1", s.d, init=ONES))
    q = nn.rope(b, nn.project(b, h, p.param("wq", s.d, s.kv, g, e)))
    k = nn.rope(b, nn.project(b, h, p.param("wk", s.d, s.kv, e)))
    v = nn.project(b, h, p.param("wv", s.d, s.kv, e))
    o = nn.attention(b, q, k, v, causal=True)
    mid = nn.binary(b, "add", given, nn.project(b, o, p.param("wo", s.kv, g, e, s.d)))
    h = nn.norm(b, "rmsnorm", mid, p.param("g2", s.d, init=ONES))
    gate, up = nn.project(b, h, p.param("wg", s.d, s.ffn)), nn.project(b, h, p.param("wu", s.d, s.ffn))
    u = nn.elementwise(b, "swiglu", gate, up)
    out = nn.binary(b, "add", mid, nn.project(b, u, p.param("w2", s.ffn, s.d)))
    block = p.close(out, Ref("x", (Affine(1, (("l", 1),)),)))
    head = _head(d, x, labels, count, "rmsnorm", None)
    train = _training(s, dtype, options)
    chain = (first, Loop("l", s.layers, (block,)), head)
    return _finish(d, chain, degrees or {}, train, wafer or Wafer("w", 2, 4))


def tensors(module: Module, seed: int = 0) -> dict[str, np.ndarray]:
    """Random parameters and inputs, some labels ignored."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for a in module.arrays:
        shape = (*a.extents, *a.type.shape)
        if a.kind is Kind.PARAM:
            out[a.name] = rng.normal(size=shape) * 0.3 + (a.init.kind == "ones")
        elif a.kind is Kind.INPUT:
            vocab = next(p.type.shape[0] for p in module.arrays if p.name == "wte")
            out[a.name] = rng.integers(0, vocab, shape).astype(np.int32)
    out["labels"].reshape(-1)[::7] = -100
    return out
