"""BERT and ViT as Hugging Face defines them: tensors of a checkpoint, and the loss of a batch, in plain NumPy."""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np

from tests.support.huggingface_configs import whole_images

A = np.ndarray
Config = dict[str, Any]
Tensors = dict[str, A]
Shapes = dict[str, tuple[int, ...]]


def shapes(c: Config) -> Shapes:
    """The shapes of all tensors of the model with its head, by name."""
    d, f, texts = c["hidden_size"], c["intermediate_size"], c["model_type"] == "bert"
    attention = "attention.self" if texts else "attention.attention"
    out = _bert_ends(c, d) if texts else _vit_ends(c, d)
    for i in range(c["num_hidden_layers"]):
        p = f"{c['model_type']}.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            _linear_shape(out, f"{p}.{attention}.{name}", d, d)
        _linear_shape(out, f"{p}.attention.output.dense", d, d)
        _linear_shape(out, f"{p}.intermediate.dense", f, d)
        _linear_shape(out, f"{p}.output.dense", d, f)
        for name in _norms(texts):
            out[f"{p}.{name}.weight"] = out[f"{p}.{name}.bias"] = (d,)
    return out


def _norms(texts: bool) -> tuple[str, str]:
    return (
        ("attention.output.LayerNorm", "output.LayerNorm")
        if texts
        else ("layernorm_before", "layernorm_after")
    )


def _linear_shape(out: Shapes, name: str, rows: int, columns: int) -> None:
    out[f"{name}.weight"], out[f"{name}.bias"] = (rows, columns), (rows,)


def _bert_ends(c: Config, d: int) -> Shapes:
    out: Shapes = {
        "bert.embeddings.word_embeddings.weight": (c["vocab_size"], d),
        "bert.embeddings.position_embeddings.weight": (c["max_position_embeddings"], d),
        "bert.embeddings.token_type_embeddings.weight": (c["type_vocab_size"], d),
        "cls.predictions.bias": (c["vocab_size"],),
    }
    for name in ("bert.embeddings.LayerNorm", "cls.predictions.transform.LayerNorm"):
        out[f"{name}.weight"] = out[f"{name}.bias"] = (d,)
    _linear_shape(out, "cls.predictions.transform.dense", d, d)
    return out


def _vit_ends(c: Config, d: int) -> Shapes:
    patch = c["patch_size"]
    out: Shapes = {
        "vit.embeddings.cls_token": (1, 1, d),
        "vit.embeddings.position_embeddings": (1, (c["image_size"] // patch) ** 2 + 1, d),
        "vit.embeddings.patch_embeddings.projection.weight": (d, c["num_channels"], patch, patch),
        "vit.embeddings.patch_embeddings.projection.bias": (d,),
        "vit.layernorm.weight": (d,),
        "vit.layernorm.bias": (d,),
    }
    _linear_shape(out, "classifier", c["num_labels"], d)
    return out


def random_checkpoint(c: Config) -> Tensors:
    """A random checkpoint in which nothing is 0 or 1."""
    rng = np.random.default_rng(0)
    return {
        name: 0.3 * rng.normal(size=s) + ("norm" in name.lower() and name.endswith("weight"))
        for name, s in shapes(c).items()
    }


def loss(c: Config, t: Tensors, arrays: dict[str, A]) -> float:
    """The mean cross entropy of all labels that are not -100."""
    rows = range(len(arrays["labels"]))
    found = [_bert(c, t, arrays, b) if c["model_type"] == "bert" else _vit(c, t, arrays, b) for b in rows]
    logits, labels = np.concatenate(found), arrays["labels"].reshape(-1)
    terms = [
        np.log(np.exp(x - x.max()).sum()) + x.max() - x[y]
        for x, y in zip(logits, labels, strict=True)
        if y >= 0
    ]
    return float(np.mean(terms))


def _norm(c: Config, t: Tensors, name: str, x: A) -> A:
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + c["layer_norm_eps"])
    return x * t[f"{name}.weight"] + t[f"{name}.bias"]


def _linear(t: Tensors, name: str, x: A) -> A:
    return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]


def _gelu(x: A) -> A:
    return np.vectorize(lambda z: 0.5 * z * (1 + erf(z / sqrt(2))))(x)


def _attended(c: Config, t: Tensors, place: str, out: str, x: A) -> A:
    n = c["num_attention_heads"]
    q, k, v = (np.split(_linear(t, f"{place}.{m}", x), n, -1) for m in ("query", "key", "value"))
    heads = []
    for one, two, three in zip(q, k, v, strict=True):
        weights = np.exp(one @ two.T / sqrt(one.shape[-1]))
        heads.append(weights / weights.sum(-1, keepdims=True) @ three)
    return _linear(t, out, np.concatenate(heads, -1))


def _bert(c: Config, t: Tensors, arrays: dict[str, A], b: int) -> A:
    tokens, segments = arrays["tokens"][b], arrays["segments"][b]
    root = "bert.embeddings"
    words = t[f"{root}.word_embeddings.weight"]
    x = words[tokens] + t[f"{root}.token_type_embeddings.weight"][segments]
    x = _norm(c, t, f"{root}.LayerNorm", x + t[f"{root}.position_embeddings.weight"][: len(tokens)])
    for i in range(c["num_hidden_layers"]):
        p = f"bert.encoder.layer.{i}"
        x = x + _attended(c, t, f"{p}.attention.self", f"{p}.attention.output.dense", x)
        x = _norm(c, t, f"{p}.attention.output.LayerNorm", x)
        x = x + _linear(t, f"{p}.output.dense", _gelu(_linear(t, f"{p}.intermediate.dense", x)))
        x = _norm(c, t, f"{p}.output.LayerNorm", x)
    place = "cls.predictions.transform"
    h = _norm(c, t, f"{place}.LayerNorm", _gelu(_linear(t, f"{place}.dense", x)))
    return h @ words.T + t["cls.predictions.bias"]


def _vit(c: Config, t: Tensors, arrays: dict[str, A], b: int) -> A:
    """The patches by a convolution of their own stride, row by row."""
    image, side = whole_images(c, arrays["images"][b : b + 1])[0], c["patch_size"]
    root = "vit.embeddings"
    rows = [t[f"{root}.cls_token"][0, 0]]
    for y in range(0, c["image_size"], side):
        for x in range(0, c["image_size"], side):
            window = image[:, y : y + side, x : x + side]
            kernel = t[f"{root}.patch_embeddings.projection.weight"]
            rows.append((kernel * window).sum((1, 2, 3)) + t[f"{root}.patch_embeddings.projection.bias"])
    h = np.stack(rows) + t[f"{root}.position_embeddings"][0]
    for i in range(c["num_hidden_layers"]):
        p = f"vit.encoder.layer.{i}"
        normed = _norm(c, t, f"{p}.layernorm_before", h)
        h = h + _attended(c, t, f"{p}.attention.attention", f"{p}.attention.output.dense", normed)
        up = _gelu(_linear(t, f"{p}.intermediate.dense", _norm(c, t, f"{p}.layernorm_after", h)))
        h = h + _linear(t, f"{p}.output.dense", up)
    return _linear(t, "classifier", _norm(c, t, "vit.layernorm", h[:1]))
