"""The canonical `.wsl` text of an imported model. Invariant: `fmt(parse(text)) == text`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

from wscc.diagnostics import Code, CompileError, Source, fail
from wscc.frontend.elaborate import elaborate
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.huggingface.architecture import Architecture, architecture, dropped_out
from wscc.huggingface.config import Config
from wscc.huggingface.setup import PRESET, Setup, length, setup

_WIDTH: Final = 120
_TITLES = {
    "gpt2": "GPT-2",
    "opt": "OPT",
    "llama": "Llama",
    "qwen2": "Qwen2",
    "mistral": "Mistral",
    "granite": "Granite",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """A program, and in `notes` where its training differs from what the config describes."""

    text: str
    notes: tuple[str, ...]


def imported(config: Config, seq: int | None = None) -> Imported:
    """The program of a `config.json`: model, wafer and training, for sequences of `seq` tokens if that is given.
    `CompileError` as for `architecture`, or W105 if the model cannot be compiled or has no such sequences."""
    a = architecture(config)
    if seq is not None and seq > a.most_positions:
        field = "`sliding_window`" if a.window == a.most_positions else "the config"
        raise fail(
            Code.CONFIG, f"a sequence of {seq} tokens is longer than the {a.most_positions} positions of the model",
            help=f"{field} allows a `seq` of {a.most_positions} at most",
        )  # fmt: skip
    a = replace(a, seq=seq)
    plan = setup(a)
    notes = tuple(_notes(a, dropped_out(config)))
    parts = (_opening(a, plan, notes), _model(a), _training(a, plan))
    source = Source(f"import of {config.source.name}", "\n\n".join(parts))
    try:
        tree = parse(source)
        elaborate(resolve(tree))
    except CompileError as error:  # a size beyond the limits of the language
        raise fail(
            Code.CONFIG, f"`{config.source.name}` describes a model that cannot be compiled: "
            + error.diagnostics[0].message, help="check its sizes",
        ) from None  # fmt: skip
    return Imported(fmt(tree), notes)


def _notes(a: Architecture, dropout: bool) -> Iterator[str]:
    """What a person who trains the program should know."""
    if dropout:
        yield "the config asks for dropout; training here has none"
    if a.padding is not None:
        head = "; as the head it is trained there too" if a.tied else ""
        yield (
            f"PyTorch gives row {a.padding} of the embedding (pad_token_id) no gradient where that token is looked up, "
            f"and here it gets one{head}: training differs once an input has the token"
        )


def number(x: float) -> str:
    """The shortest text that reads back as exactly this number, such as `1e-5` or `500000`."""
    return re.sub(r"e([+-])0*(?=\d)", lambda m: "e-" if m[1] == "-" else "e", repr(x).removesuffix(".0"))


def _opening(a: Architecture, plan: Setup, notes: tuple[str, ...]) -> str:
    lines = [
        f"# {_TITLES[a.kind]} as its config.json describes it. Keep the names of the parameters: by them `--weights`",
        "# and `--save` of `wscc run` know which tensors of a checkpoint they are.",
    ]
    lines += [
        f"# {line}" for note in notes for line in textwrap.wrap(f"{note[:1].upper()}{note[1:]}.", _WIDTH - 2)
    ]
    if a.window is not None and a.window < a.positions:
        lines.append(
            f"# Attention looks back on {a.window} positions there, and on all here: the same for a `seq` up to that."
        )
    elif length(a) < a.positions:
        lines.append(f"# The config allows {a.positions} positions; `seq` may be any number up to that.")
    if not plan.fits:
        lines.append(
            "# No wafer of these dies holds weights, gradients and optimizer state: give them more `hbm`."
        )
    mesh = "" if (plan.rows, plan.cols) == (4, 8) else f" {{ mesh {plan.rows} x {plan.cols} }}"
    return "\n".join([*lines, f'wafer temp = preset "{PRESET}"{mesh}'])


def _model(a: Architecture) -> str:
    sizes = {"layers": a.layers, "d": a.d, "heads": a.heads}
    if a.gated:
        sizes["kv"] = a.kv
    if a.head_size * a.heads != a.d:
        sizes["e"] = a.head_size
    sizes |= {"ffn": a.ffn, "vocab": a.vocab, "seq": length(a)}
    w = f"init normal({number(a.std)})"
    head = "transpose(wte)" if a.tied else "head"
    norm = "rmsnorm(x, gf" if a.gated else "layernorm(x, gf, bf"
    lines = [
        f"model {a.kind}({', '.join(f'{k} = {v}' for k, v in sizes.items())}) {{",
        "input tokens : i32[batch, seq]", "input labels : i32[batch, seq]", f"param wte : [vocab, d] {w}",
        *([] if a.gated else [f"param wpe : [seq, d] {w}{_offset(a)}"]), "",
        "x = embedding(tokens, wte)" + ("" if a.gated else " + wpe"), "repeat layers as block {",
        *(_gated_block(a, w) if a.gated else _block(a, w)), "}", "",
        "param gf : [d] init ones", *([] if a.gated else ["param bf : [d] init zeros"]),
        *([] if a.tied else [f"param head : [d, vocab] {w}"]),
        f"loss cross_entropy({norm}{_eps(a)}) @ {head}, labels)", "}",
    ]  # fmt: skip
    return "\n".join(lines)


def _offset(a: Architecture) -> str:
    return (
        "  # a checkpoint has two rows more, before these, which are never looked up"
        if a.kind == "opt"
        else ""
    )


def _eps(a: Architecture) -> str:
    return "" if a.eps == 1e-5 else f", eps = {number(a.eps)}"


def _block(a: Architecture, w: str) -> list[str]:
    """The lines of a layer of GPT-2 or OPT."""
    residual_init = (
        f"init normal({number(float(f'{a.std / sqrt(2 * a.layers):.1e}'))})" if a.kind == "gpt2" else w
    )
    return [
        "param g1 : [d] init ones", "param b1 : [d] init zeros",
        *(_fused(w) if a.kind == "gpt2" else _separate(w)),
        f"param wo : [heads, d / heads, d] {residual_init}", "param bo : [d] init zeros",
        f"h = layernorm(x, g1, b1{_eps(a)})",
        *(["q, k, v = split(project(h, wqkv) + bqkv)"] if a.kind == "gpt2"
          else [f"{t} = project(h, w{t}) + b{t}" for t in "qkv"]),
        "x = x + project(attention(q, k, v, causal), wo) + bo", "",
        "param g2 : [d] init ones", "param b2 : [d] init zeros",
        f"param wup : [d, ffn] {w}", "param bup : [ffn] init zeros",
        f"param wdown : [ffn, d] {residual_init}", "param bdown : [d] init zeros",
        f"h = layernorm(x, g2, b2{_eps(a)})", f"x = x + {a.activation}(h @ wup + bup) @ wdown + bdown",
    ]  # fmt: skip


def _fused(w: str) -> list[str]:
    return [f"param wqkv : [d, 3, heads, d / heads] {w}", "param bqkv : [3, heads, d / heads] init zeros"]


def _separate(w: str) -> list[str]:
    return [
        line
        for t in "qkv"
        for line in (f"param w{t} : [d, heads, d / heads] {w}", f"param b{t} : [heads, d / heads] init zeros")
    ]


def _gated_block(a: Architecture, w: str) -> list[str]:
    """The lines of a layer of Llama or Qwen2: head `k * heads / kv + g` of the queries is `q[k, g]`."""
    e = "d / heads" if a.head_size * a.heads == a.d else "e"
    theta = "" if a.theta == 10000 else f", theta = {number(a.theta)}"
    shapes = {"wq": f"[d, kv, heads / kv, {e}]", "wk": f"[d, kv, {e}]", "wv": f"[d, kv, {e}]"}

    def bias(part: str, name: str, dims: str) -> list[str]:
        return [f"param {name} : {dims} init zeros"] if part in a.biased else []

    def plus(part: str, name: str) -> str:
        return f" + {name}" if part in a.biased else ""

    heads = [
        line
        for name, dims in shapes.items()
        for line in (f"param {name} : {dims} {w}", *bias("qkv", f"b{name[1]}", dims.replace("[d, ", "[")))
    ]
    q, k, v = (f"project(h, w{t}){plus('qkv', f'b{t}')}" for t in "qkv")
    return [
        "param g1 : [d] init ones", *heads, f"param wo : [kv, heads / kv, {e}, d] {w}", *bias("o", "bo", "[d]"),
        f"h = rmsnorm(x, g1{_eps(a)})", f"q = rope({q}{theta})", f"k = rope({k}{theta})", f"v = {v}",
        f"x = x + project(attention(q, k, v, causal), wo){plus('o', 'bo')}", "",
        "param g2 : [d] init ones",
        f"param wgate : [d, ffn] {w}", *bias("mlp", "bgate", "[ffn]"),
        f"param wup : [d, ffn] {w}", *bias("mlp", "bup", "[ffn]"),
        f"param wdown : [ffn, d] {w}", *bias("mlp", "bdown", "[d]"),
        f"h = rmsnorm(x, g2{_eps(a)})",
        f"x = x + swiglu(h @ wgate{plus('mlp', 'bgate')}, h @ wup{plus('mlp', 'bup')}) @ wdown{plus('mlp', 'bdown')}",
    ]  # fmt: skip


def _training(a: Architecture, plan: Setup) -> str:
    degrees = {"dp": plan.dp, "tp": plan.tp, "tatp": plan.tatp}
    strategy = ", ".join(f"{axis} = {n}" for axis, n in degrees.items() if n > 1) or "dp = 1"
    micro = 4 if plan.recompute == "selective" else 1
    return "\n".join(
        [
            f"train {a.kind} on temp {{",
            f"batch {8 * micro * plan.dp}  # sequences a step",
            f"microbatch {micro}  # of them at once, in each dp replica",
            '# data "text.txt"  (bytes as tokens; without it, tokens come from the seed)',
            "optimizer adamw(lr = 3e-4, weight_decay = 0.1)", "clip 1.0", "lr_schedule warmup(100)",
            "dtype compute bf16, params f32, grads f32", f"recompute {plan.recompute}", f"parallel {strategy}", "}",
        ]
    )  # fmt: skip
