"""The models of imported encoders: BERT with the head of its masked language model, and ViT with a classifier."""

from __future__ import annotations

from wscc.huggingface.architecture import Architecture
from wscc.huggingface.blocks import norm, norm_parameters, number, separate_heads


def encoder(a: Architecture) -> list[str]:
    """The lines of an encoder's model."""
    return _images(a) if a.images else _texts(a)


def _texts(a: Architecture) -> list[str]:
    w = f"init normal({number(a.std)})"
    head = "transpose(wte)" if a.tied else "head"
    return [
        f"model {a.kind}(layers = {a.layers}, d = {a.d}, heads = {a.heads}, ffn = {a.ffn}, vocab = {a.vocab}, "
        f"segment_kinds = {a.segments}, seq = {a.seq or a.positions}) {{",
        "input tokens : i32[batch, seq]", "input segments : i32[batch, seq]",
        "input labels : i32[batch, seq]  # what stood at masked positions, -100 elsewhere",
        f"param wte : [vocab, d] {w}", f"param wpe : [seq, d] {w}", f"param wse : [segment_kinds, d] {w}",
        *norm_parameters(a, "0"), "",
        "x = embedding(tokens, wte) + wpe + embedding(segments, wse)", f"x = {norm(a, '0')}",
        "repeat layers as block {", *_heads(a, w), *norm_parameters(a, "1"),
        f"x = {norm(a, '1', f'x + {_ATTENDED}')}", "",
        *_feed_forward(w), *norm_parameters(a, "2"),
        f"x = {norm(a, '2', f'x + {a.activation}(x @ wup + bup) @ wdown + bdown')}", "}", "",
        f"param wt : [d, d] {w}", "param ct : [d] init zeros", *norm_parameters(a, "t"),
        *([] if a.tied else [f"param head : [d, vocab] {w}"]), "param bhead : [vocab] init zeros",
        f"h = {norm(a, 't', f'{a.activation}(x @ wt + ct)')}",
        f"loss cross_entropy(h @ {head} + bhead, labels)", "}",
    ]  # fmt: skip


def _images(a: Architecture) -> list[str]:
    assert a.images is not None
    w, side = f"init normal({number(a.std)})", a.images.patch
    return [
        f"model {a.kind}(layers = {a.layers}, d = {a.d}, heads = {a.heads}, ffn = {a.ffn}, "
        f"patches = {a.images.patches}, colours = {a.images.channels}, side = {side}, classes = {a.images.classes}) {{",
        "input images : f32[batch, patches, colours, side, side]  # patches row by row",
        "input labels : i32[batch]", f"param wpatch : [colours, side, side, d] {w}", "param bpatch : [d] init zeros",
        f"param cls : [1, d] {w}", f"param wpe : [patches + 1, d] {w}", "",
        "x = concat(cls, project(images, wpatch) + bpatch) + wpe", "repeat layers as block {",
        *norm_parameters(a, "1"), f"h = {norm(a, '1')}", *_heads(a, w, "h"), f"x = x + {_ATTENDED}", "",
        *norm_parameters(a, "2"), *_feed_forward(w), f"h = {norm(a, '2')}",
        f"x = x + {a.activation}(h @ wup + bup) @ wdown + bdown", "}", "",
        *norm_parameters(a, "f"), f"param head : [d, classes] {w}", "param bhead : [classes] init zeros",
        f"loss cross_entropy({norm(a, 'f', 'first(x)')} @ head + bhead, labels)", "}",
    ]  # fmt: skip


_ATTENDED = "project(attention(q, k, v), wo) + bo"


def _heads(a: Architecture, w: str, x: str = "x") -> list[str]:
    """Queries, keys and values of x, by three matrices."""
    biased = "qkv" in a.biased
    return [
        *(line for line in separate_heads(w) if biased or line.startswith("param w")),
        f"param wo : [heads, d / heads, d] {w}", "param bo : [d] init zeros",
        *(f"{t} = project({x}, w{t})" + f" + b{t}" * biased for t in "qkv"),
    ]  # fmt: skip


def _feed_forward(w: str) -> list[str]:
    return [
        f"param wup : [d, ffn] {w}", "param bup : [ffn] init zeros", f"param wdown : [ffn, d] {w}",
        "param bdown : [d] init zeros",
    ]  # fmt: skip
