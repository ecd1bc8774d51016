"""A model of the ops that GPT and Llama lack, so that every derivative and kernel has a program to break."""

from __future__ import annotations

from tests.models import LAYER, MB, NORMAL, ONES, ZEROS, Draft, Part, Shape, _finish, _head, _inputs, _training
from wscc.ir import construct as nn
from wscc.ir.module import Affine, Kind, Loop, Module, Ref
from wscc.ir.types import DType
from wscc.machine.wafer import Wafer


def zoo(
    degrees: dict[str, int] | None = None, shape: Shape = Shape(), *, dtype: DType = DType.F64,
    wafer: Wafer | None = None, **options: object,
) -> Module:  # fmt: skip
    """sub, mul, div, scale, cast, gsum, stack, relu and erf GELU, two layers of each."""
    s, d = shape, Draft(shape, dtype)
    tokens, labels, count = _inputs(d, (degrees or {}).get("dp", 1))
    embed = Part(d, "embed")
    x0 = nn.embedding(embed.b, embed.bind(tokens, MB), embed.param("wte", s.vocab, s.d))
    x = d.array("x", (s.batch // s.calls, s.seq, s.d), Kind.CARRIED, (s.layers + 1,))
    first = embed.close(x0, Ref("x", (Affine(0),)))

    p = Part(d, "block", s.layers)
    b = p.b
    given = p.bind(x, LAYER)
    h = nn.binary(b, "sub", given, p.param("low", s.d, init=ZEROS))
    h = nn.binary(b, "mul", h, p.param("gain", s.d, init=ONES))
    h = nn.binary(b, "div", h, p.param("width", s.d, init=ONES))
    pair = nn.project(b, h, p.param("w", s.d, 2, s.d, init=NORMAL))
    left, right = nn.split(b, pair, 2, hints=["left", "right"])
    left, right = nn.elementwise(b, "gelu_erf", left), nn.elementwise(b, "relu", right)
    same = "b s f, b s f -> b s f"
    both = b.one("gsum", [left, right], same, hints=["both"])
    apart = nn.binary(b, "sub", nn.scale(b, left, 0.7), right)
    ratio = nn.binary(b, "mul", both, apart)
    stacked = b.one("stack", [ratio, right], "b s f, b s f -> b s c! f", sizes={"c": 2}, attrs={"dim": 2})
    held = b.one("cast", [stacked], "b s c f -> b s c f", dtypes=[dtype])
    out = nn.binary(b, "add", given, nn.project(b, held, p.param("out", 2, s.d, s.d)))
    block = p.close(out, Ref("x", (Affine(1, (("l", 1),)),)))
    head = _head(d, x, labels, count, "rmsnorm", None)
    chain = (first, Loop("l", s.layers, (block,)), head)
    return _finish(d, chain, degrees or {}, _training(s, dtype, options), wafer or Wafer("w", 2, 4))
