"""The canonical `.wsl` text of an imported model. Invariant: `fmt(parse(text)) == text`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from wscc.diagnostics import Code, CompileError, Source, fail
from wscc.frontend.elaborate import elaborate
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.huggingface.architecture import Architecture, LayerKind
from wscc.huggingface.blocks import layer, norm, norm_parameters, number, positions_comment, times
from wscc.huggingface.config import Config
from wscc.huggingface.encoders import encoder
from wscc.huggingface.fields import dropped_out
from wscc.huggingface.readers import architecture
from wscc.huggingface.setup import PRESET, Setup, length, setup

_WIDTH: Final = 120
_TITLES = {
    "gpt2": "GPT-2",
    "opt": "OPT",
    "llama": "Llama",
    "qwen2": "Qwen2",
    "mistral": "Mistral",
    "granite": "Granite",
    "bloom": "BLOOM",
    "bert": "BERT",
    "vit": "ViT",
    "gemma": "Gemma",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3",
    "mixtral": "Mixtral",
    "qwen3_moe": "Qwen3-MoE",
    "qwen3": "Qwen3",
    "phi3": "Phi-3",
    "gpt_neox": "GPT-NeoX",
    "stablelm": "StableLM",
    "falcon": "Falcon",
    "gptj": "GPT-J",
    "olmoe": "OLMoE",
    "qwen2_moe": "Qwen2-MoE",
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
    if seq is not None and a.images:
        raise fail(
            Code.CONFIG, f"a sequence of {seq} tokens is asked for, and images have {a.images.patches} patches",
            help="leave out `--seq`",
        )  # fmt: skip
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


def _opening(a: Architecture, plan: Setup, notes: tuple[str, ...]) -> str:
    lines = [
        f"# {_TITLES[a.kind]} as its config.json describes it."
        + " Keep the names of the model and of its parameters: by",
        "# them `--weights` and `--save` of `wscc run` know which tensors of a checkpoint they are.",
    ]
    lines += [
        f"# {line}" for note in notes for line in textwrap.wrap(f"{note[:1].upper()}{note[1:]}.", _WIDTH - 2)
    ]
    if a.window is not None and length(a) <= a.window < a.positions:
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
    if a.encodes:
        return "\n".join(encoder(a))
    sizes = {"layers": a.layers, "d": a.d, "heads": a.heads}
    if not a.learned and not a.fused:
        sizes["kv"] = a.kv
    if a.head_size * a.heads != a.d:
        sizes["e"] = a.head_size
    if a.experts:
        sizes |= {"experts": a.experts.count, **({"shared": a.experts.shared} if a.experts.shared else {})}
    if a.table:
        sizes["table"] = a.table
    sizes |= {"ffn": a.ffn, "vocab": a.vocab, "seq": length(a)}
    w = f"init normal({number(a.std)})"
    head, width = "transpose(wte)" if a.tied else "head", "table" if a.table else "d"
    first = times("embedding(tokens, wte)" + " @ win" * bool(a.table), a.factors.embedding)
    last = f"{'x' if a.behind else norm(a, 'f')}{' @ wout' * bool(a.table)} @ {head}"
    lines = [
        f"model {a.kind}({', '.join(f'{k} = {v}' for k, v in sizes.items())}) {{",
        "input tokens : i32[batch, seq]", "input labels : i32[batch, seq]", f"param wte : [vocab, {width}] {w}",
        *([f"param win : [table, d] {w}", f"param wout : [d, table] {w}"] if a.table else []),
        *([f"param wpe : [seq, d] {w}{positions_comment(a)}"] if a.learned else []), "",
        *(norm_parameters(a, "0") if a.alibi else []),
        f"x = {first}" + (" + wpe" if a.learned else ""), *([f"x = {norm(a, '0')}"] if a.alibi else []),
        *(_layers_in_turn(a, sizes) if a.kinds else ["repeat layers as block {", *layer(a, w), "}"]), "",
        *([] if a.behind else norm_parameters(a, "f")),
        *([] if a.tied else [f"param head : [{width}, vocab] {w}"]),
        *(["param bhead : [vocab] init zeros"] if a.head_bias else []),
        f"loss cross_entropy({_logits(a, last)}, labels)", "}",
    ]  # fmt: skip
    return "\n".join([*_block(a, w, sizes), *lines])


def _logits(a: Architecture, x: str) -> str:
    out = f"{times(x, a.factors.logits)}{' + bhead' if a.head_bias else ''}"
    return f"soft_cap({out}, cap = {number(a.caps.logits)})" if a.caps.logits else out


def _block(a: Architecture, w: str, sizes: dict[str, int]) -> list[str]:
    """The block of a layer, where a `repeat` has several that differ."""
    if not a.kinds:
        return []
    return [
        f"block layer(x, {', '.join(_inner(sizes))}, window = 0, theta = 10000, factor = 1) {{",
        *layer(a, w), "return x", "}", "",
    ]  # fmt: skip


def _inner(sizes: Iterable[str]) -> list[str]:
    """The sizes that a layer has."""
    return [n for n in sizes if n not in ("layers", "vocab", "seq")]


def _layers_in_turn(a: Architecture, sizes: Iterable[str]) -> list[str]:
    """A `repeat` of as many layers as come in turn, and one of those that are left, which are alike."""
    rest = a.layers % len(a.kinds)
    calls = [_call(kind, _inner(sizes)) for kind in a.kinds]
    lines = [f"repeat {a.layers // len(a.kinds)} as block {{", *calls, "}"]
    return [*lines, f"repeat {rest} as rest {{", calls[0], "}"] if rest else lines


def _call(kind: LayerKind, sizes: list[str]) -> str:
    options = {"window": kind.window, "theta": kind.rotary.theta, "factor": kind.rotary.factor}
    neutral = {"window": 0, "theta": 10000, "factor": 1}
    given = [f"{n} = {number(float(x))}" for n, x in options.items() if x != neutral[n]]
    return f"x = layer({', '.join(['x', *sizes, *given])})"


def _data(a: Architecture) -> str:
    if not a.encodes:
        return '# data "text.txt"  (bytes as tokens; without it, tokens come from the seed)'
    arrays = "images and labels" if a.images else "tokens, segments and labels"
    return f'# data "arrays.npz"  (arrays {arrays}; without it, they come from the seed)'


def _training(a: Architecture, plan: Setup) -> str:
    degrees = {"dp": plan.dp, "tp": plan.tp, "tatp": plan.tatp}
    strategy = ", ".join(f"{axis} = {n}" for axis, n in degrees.items() if n > 1) or "dp = 1"
    micro = 4 if plan.recompute == "selective" else 1
    return "\n".join(
        [
            f"train {a.kind} on temp {{",
            f"batch {8 * micro * plan.dp}  # sequences a step",
            f"microbatch {micro}  # of them at once, in each dp replica",
            _data(a),
            "optimizer adamw(lr = 3e-4, weight_decay = 0.1)", "clip 1.0", "lr_schedule warmup(100)",
            "dtype compute bf16, params f32, grads f32", f"recompute {plan.recompute}", f"parallel {strategy}", "}",
        ]
    )  # fmt: skip
