"""The lines of a layer of an imported model, and the parts of its text that they share with the rest."""

from __future__ import annotations

import re
from math import sqrt

from wscc.huggingface.architecture import Architecture
from wscc.huggingface.setup import length


def number(x: float) -> str:
    """The shortest text that reads back as exactly this number, such as `1e-5` or `500000`."""
    return re.sub(r"e([+-])0*(?=\d)", lambda m: "e-" if m[1] == "-" else "e", repr(x).removesuffix(".0"))


def times(x: str, factor: float) -> str:
    """The expression times a factor, if that is not 1."""
    return x if factor == 1 else f"({x}) * {number(factor)}" if " + " in x else f"{x} * {number(factor)}"


def layer(a: Architecture, w: str) -> list[str]:
    """The lines of a layer whose matrices start as `w`."""
    return _learned(a, w) if a.learned else _unlearned(a, w)


def norm_parameters(a: Architecture, place: str) -> list[str]:
    """The declarations of a norm's parameters; `place` ends their names."""
    bias = [] if a.rms else [f"param b{place} : [d] init zeros"]
    return [f"param g{place} : [d] init {_neutral(a)}", *bias]


def _neutral(a: Architecture) -> str:
    """The gain that changes nothing."""
    return "zeros" if a.unit else "ones"


def _gain(a: Architecture, name: str) -> str:
    return f"1 + {name}" if a.unit else name


def norm(a: Architecture, place: str, x: str = "x") -> str:
    """The norm of x."""
    gain = _gain(a, f"g{place}")
    return f"rmsnorm({x}, {gain}{_eps(a)})" if a.rms else f"layernorm({x}, {gain}, b{place}{_eps(a)})"


def positions_comment(a: Architecture) -> str:
    return (
        "  # a checkpoint has two rows more, before these, which are never looked up"
        if a.kind == "opt"
        else ""
    )


def _eps(a: Architecture) -> str:
    return "" if a.eps == 1e-5 else f", eps = {number(a.eps)}"


def _learned(a: Architecture, w: str) -> list[str]:
    """The lines of a layer of GPT-2 or OPT."""
    residual_init = (
        f"init normal({number(float(f'{a.std / sqrt(2 * a.layers):.1e}'))})" if a.kind == "gpt2" else w
    )
    if a.behind:
        return _behind(a, w)
    return [
        *norm_parameters(a, "1"),
        *(_fused(w) if a.kind == "gpt2" else separate_heads(w)),
        f"param wo : [heads, d / heads, d] {residual_init}", "param bo : [d] init zeros",
        f"h = {norm(a, '1')}",
        *(["q, k, v = split(project(h, wqkv) + bqkv)"] if a.kind == "gpt2"
          else [f"{t} = project(h, w{t}) + b{t}" for t in "qkv"]),
        "x = x + project(attention(q, k, v, causal), wo) + bo", "",
        *norm_parameters(a, "2"),
        f"param wup : [d, ffn] {w}", "param bup : [ffn] init zeros",
        f"param wdown : [ffn, d] {residual_init}", "param bdown : [d] init zeros",
        f"h = {norm(a, '2')}", f"x = x + {a.activation}(h @ wup + bup) @ wdown + bdown",
    ]  # fmt: skip


def _behind(a: Architecture, w: str) -> list[str]:
    """The lines of a layer whose norms stand behind its parts (OPT-350m)."""
    return [
        *separate_heads(w), f"param wo : [heads, d / heads, d] {w}", "param bo : [d] init zeros",
        *norm_parameters(a, "1"),
        *(f"{t} = project(x, w{t}) + b{t}" for t in "qkv"),
        "x = x + project(attention(q, k, v, causal), wo) + bo", f"x = {norm(a, '1')}", "",
        f"param wup : [d, ffn] {w}", "param bup : [ffn] init zeros",
        f"param wdown : [ffn, d] {w}", "param bdown : [d] init zeros", *norm_parameters(a, "2"),
        f"x = x + {a.activation}(x @ wup + bup) @ wdown + bdown", f"x = {norm(a, '2')}",
    ]  # fmt: skip


def _fused(w: str) -> list[str]:
    return [f"param wqkv : [d, 3, heads, d / heads] {w}", "param bqkv : [3, heads, d / heads] init zeros"]


def separate_heads(w: str) -> list[str]:
    """The declarations of three matrices, for queries, keys and values, with biases."""
    return [
        line
        for t in "qkv"
        for line in (f"param w{t} : [d, heads, d / heads] {w}", f"param b{t} : [heads, d / heads] init zeros")
    ]


def _unlearned(a: Architecture, w: str) -> list[str]:
    """The lines of a layer without a table of positions: attention, and the feed-forward part behind or beside it."""
    attention = f"project({_attention(a)}, wo){_plus(a, 'o', 'bo')}"
    declared, lines, result = _feed_forward(a, w)
    attention, result = (times(x, a.factors.residual) for x in (attention, result))
    if a.sandwich:
        attention, result = norm(a, "a", attention), norm(a, "m", result)
    before, between = a.norms
    if not a.shared:
        declared, lines = [*norm_parameters(a, between), *declared], [f"h = {norm(a, between)}", *lines]
    return [
        *norm_parameters(a, before), *(_fused_heads(a, w) if a.fused else _heads(a, w)),
        *(norm_parameters(a, "a") + norm_parameters(a, "m") if a.sandwich else []),
        f"y = {attention}" if a.parallel else f"x = x + {attention}", "",
        *declared, *lines, f"x = x + {'y + ' if a.parallel else ''}{result}",
    ]  # fmt: skip


def _attention(a: Architecture) -> str:
    options = ", alibi" if a.alibi else ", window = window" if a.kinds else ""
    if a.window is not None and length(a) > a.window:
        options = f", window = {a.window}"
    cap = f", cap = {number(a.caps.scores)}" if a.caps.scores else ""
    return f"attention(q, k, v, causal{options}{cap})"


def _mixture(a: Architecture, w: str) -> tuple[list[str], list[str], str]:
    """The same of a mixture of experts, which drops no token."""
    assert a.experts is not None
    declared = [
        f"param wr : [d, experts] {w}",
        f"param wgate : [experts, d, ffn] {w}",
        f"param wup : [experts, d, ffn] {w}",
        f"param wdown : [experts, ffn, d] {w}",
    ]
    flag = ", renormalise" if a.experts.renormalise else ""
    lines = [
        f"gates, slots = route(router(h, wr){flag}, k = {a.experts.chosen})",
        "y = dispatch(h, slots)",
        "y = experts(swiglu(experts(y, wgate), experts(y, wup)), wdown)",
    ]
    if a.experts.shared is None:
        return declared, lines, "combine(y, gates, slots)"
    declared += [
        f"param ws : [d] {w}  # the gate of the expert that all tokens go through",
        f"param wsgate : [d, shared] {w}",
        f"param wsup : [d, shared] {w}",
        f"param wsdown : [shared, d] {w}",
    ]
    lines.append("z = swiglu(h @ wsgate, h @ wsup) @ wsdown")
    return declared, lines, "combine(y, gates, slots) + weigh(z, sigmoid(project(h, ws)))"


def _size(a: Architecture) -> str:
    return "d / heads" if a.head_size * a.heads == a.d else "e"


def _bias(a: Architecture, part: str, name: str, dims: str) -> list[str]:
    return [f"param {name} : {dims} init zeros"] if part in a.biased else []


def _plus(a: Architecture, part: str, name: str) -> str:
    return f" + {name}" if part in a.biased else ""


def _turned(a: Architecture, x: str) -> str:
    """`rope` of x with the model's options."""
    assert a.rotary is not None
    if a.kinds:
        return f"rope({x}, theta = theta, factor = factor)"
    options = "".join(f", {name} = {number(float(value))}" for name, value in a.rotary.options.items())
    return f"rope({x}{', interleaved' if a.rotary.interleaved else ''}{options})"


def _heads(a: Architecture, w: str) -> list[str]:
    """Queries, keys and values by three matrices: head `k * heads / kv + g` of the queries is `q[k, g]`."""
    e = _size(a)
    shapes = {"wq": f"[d, kv, heads / kv, {e}]", "wk": f"[d, kv, {e}]", "wv": f"[d, kv, {e}]"}
    matrices = [
        line
        for name, dims in shapes.items()
        for line in (f"param {name} : {dims} {w}", *_bias(a, "qkv", f"b{name[1]}", dims.replace("[d, ", "[")))
    ]
    own = {"q": f"[kv, heads / kv, {e}]", "k": f"[kv, {e}]"}
    gains = [
        f"param g{t} : {f'[{e}]' if a.normed == 'head' else own[t]} init {_neutral(a)}"
        for t in "qk"
        if a.normed
    ]
    q, k, v = (f"project(h, w{t}){_plus(a, 'qkv', f'b{t}')}" for t in "qkv")
    if a.normed:
        kind = (
            "layernorm({x}{eps}) * g{t}"
            if a.normed == "each"
            else f"rmsnorm({{x}}, {_gain(a, 'g{t}')}{{eps}})"
        )
        q, k = (kind.format(x=x, t=t, eps=_eps(a)) for t, x in (("q", q), ("k", k)))
    return [
        *matrices, *gains, f"param wo : [kv, heads / kv, {e}, d] {w}", *_bias(a, "o", "bo", "[d]"),
        f"h = {norm(a, a.norms[0])}", f"q = {times(_turned(a, q), a.factors.scores)}",
        f"k = {_turned(a, k)}", f"v = {v}",
    ]  # fmt: skip


def _fused_heads(a: Architecture, w: str) -> list[str]:
    """Queries, keys and values by one matrix."""
    e = _size(a)
    return [
        f"param wqkv : [d, 3, heads, {e}] {w}", *_bias(a, "qkv", "bqkv", f"[3, heads, {e}]"),
        f"param wo : [heads, {e}, d] {w}", *_bias(a, "o", "bo", "[d]"),
        f"h = {norm(a, '1')}", f"q, k, v = split(project(h, wqkv){_plus(a, 'qkv', 'bqkv')})",
        *([f"q = {_turned(a, 'q')}", f"k = {_turned(a, 'k')}"] if a.rotary else []),
    ]  # fmt: skip


def _feed_forward(a: Architecture, w: str) -> tuple[list[str], list[str], str]:
    """The parameters of the feed-forward part of `h`, the lines before its result, and the result."""
    if a.experts:
        return _mixture(a, w)
    down = [f"param wdown : [ffn, d] {w}", *_bias(a, "mlp", "bdown", "[d]")]
    end = f" @ wdown{_plus(a, 'mlp', 'bdown')}"
    up = [f"param wup : [d, ffn] {w}", *_bias(a, "mlp", "bup", "[ffn]"), *down]
    if not a.gated:
        return up, [], f"{a.activation}(h @ wup{_plus(a, 'mlp', 'bup')}){end}"
    gate = [f"param wgate : [d, ffn] {w}", *_bias(a, "mlp", "bgate", "[ffn]")]
    first, second = (f"h @ w{name}{_plus(a, 'mlp', f'b{name}')}" for name in ("gate", "up"))
    gated = (
        f"swiglu({first}, {second})"
        if a.activation == "swiglu"
        else f"({a.activation}({first}) * ({second}))"
    )
    return [*gate, *up], [], f"{gated}{end}"
