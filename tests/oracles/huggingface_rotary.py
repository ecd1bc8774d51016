"""Llama 3, Qwen3, Phi-3, StableLM and GPT-NeoX as Hugging Face defines them: tensors of a checkpoint, and logits.

In plain NumPy, written from the modelling code of `transformers` and sharing nothing with `wscc`: one sequence, fused
rows cut as there, positions turned by `rotate_half`, frequencies scaled wavelength by wavelength.
"""

from __future__ import annotations

from math import erf, pi, sqrt, tanh
from typing import Any

import numpy as np

A = np.ndarray
Config = dict[str, Any]
Tensors = dict[str, A]
SHAPES = ("qwen3", "phi3", "stablelm", "gpt_neox")


def shapes(c: Config) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors of the model with a language head, by name."""
    d, v, n = c["hidden_size"], c["vocab_size"], c["num_attention_heads"]
    neox = c["model_type"] == "gpt_neox"
    root = "gpt_neox" if neox else "model"
    last = f"{root}.final_layer_norm" if neox else f"{root}.norm"
    out = {f"{root}.embed_in.weight" if neox else f"{root}.embed_tokens.weight": (v, d)}
    norms = [last]
    for i in range(c["num_hidden_layers"]):
        p = f"{root}.layers.{i}"
        norms.append(f"{p}.input_layernorm")
        if not (c["model_type"] == "stablelm" and c.get("use_parallel_residual")):
            norms.append(f"{p}.post_attention_layernorm")
        for name, (rows, columns, biased) in _linear_layers(c).items():
            out[f"{p}.{name}.weight"] = (rows, columns)
            if biased:
                out[f"{p}.{name}.bias"] = (rows,)
        if c["model_type"] == "qwen3":
            e = c.get("head_dim") or d // n
            out[f"{p}.self_attn.q_norm.weight"] = out[f"{p}.self_attn.k_norm.weight"] = (e,)
    for name in norms:
        out[f"{name}.weight"] = (d,)
        if c["model_type"] in ("stablelm", "gpt_neox"):
            out[f"{name}.bias"] = (d,)
    if not c["tie_word_embeddings"]:
        out["embed_out.weight" if neox else "lm_head.weight"] = (v, d)
    return out


def _linear_layers(c: Config) -> dict[str, tuple[int, int, bool]]:
    d, f, n = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    if c["model_type"] == "gpt_neox":
        return {
            "attention.query_key_value": (3 * d, d, True), "attention.dense": (d, d, True),
            "mlp.dense_h_to_4h": (f, d, True), "mlp.dense_4h_to_h": (d, f, True),
        }  # fmt: skip
    e = c.get("head_dim") or d // n
    wide, narrow = n * e, c["num_key_value_heads"] * e
    if c["model_type"] == "phi3":
        return {
            "self_attn.qkv_proj": (wide + 2 * narrow, d, False), "self_attn.o_proj": (d, wide, False),
            "mlp.gate_up_proj": (2 * f, d, False), "mlp.down_proj": (d, f, False),
        }  # fmt: skip
    biased = bool(c.get("attention_bias") or c.get("use_qkv_bias"))
    return {
        "self_attn.q_proj": (wide, d, biased), "self_attn.k_proj": (narrow, d, biased),
        "self_attn.v_proj": (narrow, d, biased), "self_attn.o_proj": (d, wide, bool(c.get("attention_bias"))),
        "mlp.gate_proj": (f, d, False), "mlp.up_proj": (f, d, False), "mlp.down_proj": (d, f, False),
    }  # fmt: skip


def _inverse_frequencies(c: Config, width: int) -> list[float]:
    theta = c.get("rotary_emb_base") or c["rope_theta"]
    plain = [theta ** (-2 * i / width) for i in range(width // 2)]
    scaling = c.get("rope_scaling")
    if scaling is None:
        return plain
    if scaling.get("type") == "linear":
        return [f / scaling["factor"] for f in plain]
    low, high, old = (
        scaling[n] for n in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    out = []
    for f in plain:  # _compute_llama3_parameters
        wavelength = 2 * pi / f
        if wavelength < old / high:
            out.append(f)
        elif wavelength > old / low:
            out.append(f / scaling["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / scaling["factor"] + smooth * f)
    return out


def _turn(c: Config, x: A) -> A:
    """One head [seq, e] with its first part turned."""
    part = c.get("rotary_pct", c.get("partial_rotary_factor", 1.0))
    width = int(x.shape[-1] * part)
    angles = np.outer(np.arange(len(x)), _inverse_frequencies(c, width))
    both = np.concatenate((angles, angles), -1)
    head, rest = x[:, :width], x[:, width:]
    rotated = np.concatenate((-head[:, width // 2 :], head[:, : width // 2]), -1)
    return np.concatenate((head * np.cos(both) + rotated * np.sin(both), rest), -1)


def _norm(c: Config, t: Tensors, name: str, x: A) -> A:
    if f"{name}.bias" in t:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + c["layer_norm_eps"])
        return x * t[f"{name}.weight"] + t[f"{name}.bias"]
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + c["rms_norm_eps"]) * t[f"{name}.weight"]


def _linear(t: Tensors, name: str, x: A) -> A:
    return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0)


def _queries_keys_values(c: Config, t: Tensors, p: str, h: A) -> tuple[list[A], list[A], list[A]]:
    """The heads [seq, e] of each, before they are turned."""
    n, kv = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    e = c.get("head_dim") or c["hidden_size"] // n
    if c["model_type"] == "gpt_neox":  # viewed as [seq, heads, 3 e], then cut in three
        three = [np.split(x, 3, -1) for x in np.split(_linear(t, f"{p}.attention.query_key_value", h), n, -1)]
        return [x[0] for x in three], [x[1] for x in three], [x[2] for x in three]
    if c["model_type"] == "phi3":
        q, k, v = np.split(_linear(t, f"{p}.self_attn.qkv_proj", h), [n * e, (n + kv) * e], -1)
    else:
        q, k, v = (_linear(t, f"{p}.self_attn.{name}_proj", h) for name in "qkv")
    heads = np.split(q, n, -1), np.split(k, kv, -1), np.split(v, kv, -1)
    if c["model_type"] != "qwen3":
        return heads
    return (
        [_norm(c, t, f"{p}.self_attn.q_norm", x) for x in heads[0]],
        [_norm(c, t, f"{p}.self_attn.k_norm", x) for x in heads[1]],
        heads[2],
    )


def _attention(c: Config, t: Tensors, p: str, h: A) -> A:
    q, k, v = _queries_keys_values(c, t, p, h)
    out = []
    for j, query in enumerate(q):
        shared = j * len(k) // len(q)
        scores = _turn(c, query) @ _turn(c, k[shared]).T / sqrt(query.shape[-1])
        scores[np.triu_indices(len(scores), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out.append(weights / weights.sum(-1, keepdims=True) @ v[shared])
    last = "attention.dense" if c["model_type"] == "gpt_neox" else "self_attn.o_proj"
    return _linear(t, f"{p}.{last}", np.concatenate(out, -1))


def _feed_forward(c: Config, t: Tensors, p: str, h: A) -> A:
    if c["model_type"] == "gpt_neox":
        up = _linear(t, f"{p}.mlp.dense_h_to_4h", h)
        if c["hidden_act"] == "gelu":
            up = up * np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))))(up)
        else:
            up = up * np.vectorize(lambda x: 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))(up)
        return _linear(t, f"{p}.mlp.dense_4h_to_h", up)
    if c["model_type"] == "phi3":
        gate, up = np.split(_linear(t, f"{p}.mlp.gate_up_proj", h), 2, -1)
    else:
        gate, up = _linear(t, f"{p}.mlp.gate_proj", h), _linear(t, f"{p}.mlp.up_proj", h)
    return _linear(t, f"{p}.mlp.down_proj", up * gate / (1 + np.exp(-gate)))


def logits(c: Config, t: Tensors, tokens: A) -> A:
    """The logits [tokens, vocabulary] of one sequence."""
    neox = c["model_type"] == "gpt_neox"
    root, first = ("gpt_neox", "embed_in") if neox else ("model", "embed_tokens")
    x = t[f"{root}.{first}.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"{root}.layers.{i}"
        h = _norm(c, t, f"{p}.input_layernorm", x)
        y = x + _attention(c, t, p, h)
        if f"{p}.post_attention_layernorm.weight" in t:
            h = _norm(c, t, f"{p}.post_attention_layernorm", x if c.get("use_parallel_residual") else y)
        x = y + _feed_forward(c, t, p, h)
    x = _norm(c, t, f"{root}.final_layer_norm" if neox else f"{root}.norm", x)
    head = "embed_out.weight" if neox else "lm_head.weight"
    return x @ t.get(head, t[f"{root}.{first}.weight"]).T
