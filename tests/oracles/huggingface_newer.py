"""OPT-350m, Granite, BLOOM and Gemma as Hugging Face defines them: tensors of a checkpoint, and logits.

In plain NumPy, written from the modelling code of `transformers` and sharing nothing with `wscc`: one sequence, query
by query where masks, slopes or caps are the matter.
"""

from __future__ import annotations

from math import exp, log2, pi, sqrt, tanh
from typing import Any

import numpy as np

A = np.ndarray
Config = dict[str, Any]
Tensors = dict[str, A]
Shapes = dict[str, tuple[int, ...]]
GEMMAS = ("gemma", "gemma2", "gemma3_text")


def is_newer(c: Config) -> bool:
    granite = c["model_type"] == "granite" and "embedding_multiplier" in c
    return (
        c["model_type"] in ("bloom", "mistral", *GEMMAS) or granite or c.get("do_layer_norm_before") is False
    )


def shapes(c: Config) -> Shapes:
    """The shapes of all tensors of the model with a language head, by name."""
    own = {"bloom": _bloom_shapes, "opt": _opt_shapes}
    return own.get(c["model_type"], _llama_shapes)(c)


def logits(c: Config, t: Tensors, tokens: A) -> A:
    """The logits [tokens, vocabulary] of one sequence."""
    own = {"bloom": _bloom, "opt": _opt, "granite": _granite, "mistral": _granite}
    return own.get(c["model_type"], _gemma)(c, t, tokens)


def _add(out: Shapes, name: str, rows: int, columns: int) -> None:
    out[f"{name}.weight"], out[f"{name}.bias"] = (rows, columns), (rows,)


def _norm(t: Tensors, name: str, x: A, eps: float) -> A:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * t[f"{name}.weight"] + t[f"{name}.bias"]


def _rms(x: A, gain: A, eps: float) -> A:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def _linear(t: Tensors, name: str, x: A) -> A:
    return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0)


def _gelu(x: A) -> A:
    return np.vectorize(lambda z: 0.5 * z * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 * z**3))))(x)


def _attend(
    q: A, k: A, v: A, scale: float, *, slope: float = 0.0, window: int = 0, cap: float | None = None
) -> A:
    """One head [seq, e], query by query: those keys alone that it sees."""
    out = np.zeros_like(q)
    for i, query in enumerate(q):
        first = max(0, i - window + 1) if window else 0
        scores = [float(query @ k[j]) * scale for j in range(first, i + 1)]
        if cap is not None:
            scores = [cap * tanh(s / cap) for s in scores]
        weights = np.array([exp(s + slope * j) for j, s in zip(range(first, i + 1), scores, strict=True)])
        out[i] = weights @ v[first : i + 1] / weights.sum()
    return out


def _turn(x: A, theta: float, factor: float = 1.0) -> A:
    """A head [seq, e] by `rotate_half`."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(len(x)), theta ** (-np.arange(half) / half) / factor)
    both = np.concatenate((angles, angles), -1)
    return x * np.cos(both) + np.concatenate((-x[:, half:], x[:, :half]), -1) * np.sin(both)


# ---- OPT-350m: norms behind, the embedding projected to the hidden size and back


def _opt_shapes(c: Config) -> Shapes:
    d, f, narrow = c["hidden_size"], c["ffn_dim"], c["word_embed_proj_dim"]
    out: Shapes = {
        "model.decoder.embed_tokens.weight": (c["vocab_size"], narrow),
        "model.decoder.embed_positions.weight": (c["max_position_embeddings"] + 2, d),
        "model.decoder.project_in.weight": (d, narrow),
        "model.decoder.project_out.weight": (narrow, d),
    }
    for i in range(c["num_hidden_layers"]):
        layer = f"model.decoder.layers.{i}"
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            out[f"{layer}.{name}.weight"] = out[f"{layer}.{name}.bias"] = (d,)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            _add(out, f"{layer}.self_attn.{name}", d, d)
        _add(out, f"{layer}.fc1", f, d)
        _add(out, f"{layer}.fc2", d, f)
    return out


def _opt(c: Config, t: Tensors, tokens: A) -> A:
    root, n = "model.decoder", c["num_attention_heads"]
    x = _linear(t, f"{root}.project_in", t[f"{root}.embed_tokens.weight"][tokens])
    x = x + t[f"{root}.embed_positions.weight"][2 : 2 + len(tokens)]
    for i in range(c["num_hidden_layers"]):
        p = f"{root}.layers.{i}"
        q, k, v = (np.split(_linear(t, f"{p}.self_attn.{m}_proj", x), n, -1) for m in "qkv")
        heads = [_attend(q[j], k[j], v[j], q[j].shape[-1] ** -0.5) for j in range(n)]
        x = x + _linear(t, f"{p}.self_attn.out_proj", np.concatenate(heads, -1))
        x = _norm(t, f"{p}.self_attn_layer_norm", x, 1e-5)
        x = x + _linear(t, f"{p}.fc2", np.maximum(_linear(t, f"{p}.fc1", x), 0))
        x = _norm(t, f"{p}.final_layer_norm", x, 1e-5)
    return _linear(t, f"{root}.project_out", x) @ t[f"{root}.embed_tokens.weight"].T


# ---- BLOOM


def _bloom_shapes(c: Config) -> Shapes:
    d = c["hidden_size"]
    out: Shapes = {"transformer.word_embeddings.weight": (c["vocab_size"], d)}
    norms = ["word_embeddings_layernorm", "ln_f"]
    for i in range(c["n_layer"]):
        norms += [f"h.{i}.input_layernorm", f"h.{i}.post_attention_layernorm"]
        _add(out, f"transformer.h.{i}.self_attention.query_key_value", 3 * d, d)
        _add(out, f"transformer.h.{i}.self_attention.dense", d, d)
        _add(out, f"transformer.h.{i}.mlp.dense_h_to_4h", 4 * d, d)
        _add(out, f"transformer.h.{i}.mlp.dense_4h_to_h", d, 4 * d)
    for name in norms:
        out[f"transformer.{name}.weight"] = out[f"transformer.{name}.bias"] = (d,)
    return out


def _alibi(heads: int) -> list[float]:
    """`build_alibi_tensor`."""
    closest = 2 ** int(log2(heads))
    base = 2 ** (-(2 ** -(log2(closest) - 3)))
    slopes = [base**power for power in range(1, 1 + closest)]
    if closest != heads:
        extra = 2 ** (-(2 ** -(log2(2 * closest) - 3)))
        slopes += [extra**power for power in range(1, 1 + 2 * (heads - closest), 2)]
    return slopes


def _bloom(c: Config, t: Tensors, tokens: A) -> A:
    root, n, eps = "transformer", c["n_head"], c["layer_norm_epsilon"]
    x = _norm(t, f"{root}.word_embeddings_layernorm", t[f"{root}.word_embeddings.weight"][tokens], eps)
    for i in range(c["n_layer"]):
        p = f"{root}.h.{i}"
        h = _norm(t, f"{p}.input_layernorm", x, eps)
        fused = _linear(t, f"{p}.self_attention.query_key_value", h).reshape(len(x), n, 3, -1)
        heads = [
            _attend(*(fused[:, j, m] for m in range(3)), fused.shape[-1] ** -0.5, slope=slope)
            for j, slope in enumerate(_alibi(n))
        ]
        x = x + _linear(t, f"{p}.self_attention.dense", np.concatenate(heads, -1))
        up = _gelu(_linear(t, f"{p}.mlp.dense_h_to_4h", _norm(t, f"{p}.post_attention_layernorm", x, eps)))
        x = x + _linear(t, f"{p}.mlp.dense_4h_to_h", up)
    return _norm(t, f"{root}.ln_f", x, eps) @ t[f"{root}.word_embeddings.weight"].T


# ---- Granite and Gemma


def _norms(c: Config) -> list[str]:
    pair = ["input_layernorm", "post_attention_layernorm"]
    return pair if c["model_type"] in ("granite", "mistral", "gemma") else [
        *pair, "pre_feedforward_layernorm", "post_feedforward_layernorm",
    ]  # fmt: skip


def _llama_shapes(c: Config) -> Shapes:
    d, f, n, kv = (
        c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    e = c.get("head_dim") or d // n
    out: Shapes = {"model.embed_tokens.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        out |= {f"{p}.{name}.weight": (d,) for name in _norms(c)}
        for name, rows, columns in (
            ("self_attn.q_proj", n * e, d), ("self_attn.k_proj", kv * e, d), ("self_attn.v_proj", kv * e, d),
            ("self_attn.o_proj", d, n * e), ("mlp.gate_proj", f, d), ("mlp.up_proj", f, d), ("mlp.down_proj", d, f),
        ):  # fmt: skip
            out[f"{p}.{name}.weight"] = (rows, columns)
        if c["model_type"] == "gemma3_text":
            out[f"{p}.self_attn.q_norm.weight"] = out[f"{p}.self_attn.k_norm.weight"] = (e,)
    return out


def _heads(c: Config, t: Tensors, p: str, h: A) -> list[list[A]]:
    counts = (c["num_attention_heads"], c["num_key_value_heads"], c["num_key_value_heads"])
    return [np.split(_linear(t, f"{p}.{m}_proj", h), n, -1) for m, n in zip("qkv", counts, strict=True)]


def _granite(c: Config, t: Tensors, tokens: A) -> A:
    """Granite, and Mistral, whose factors are those of Llama."""
    eps, theta, share = c["rms_norm_eps"], c["rope_theta"], c.get("residual_multiplier", 1.0)
    scale = c.get("attention_multiplier", (c["hidden_size"] // c["num_attention_heads"]) ** -0.5)
    x = t["model.embed_tokens.weight"][tokens] * c.get("embedding_multiplier", 1.0)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        q, k, v = _heads(c, t, f"{p}.self_attn", _rms(x, t[f"{p}.input_layernorm.weight"], eps))
        heads = [
            _attend(_turn(q[j], theta), _turn(k[m], theta), v[m], scale, window=c.get("sliding_window") or 0)
            for j in range(len(q))
            for m in (j * len(k) // len(q),)
        ]
        x = x + share * _linear(t, f"{p}.self_attn.o_proj", np.concatenate(heads, -1))
        h = _rms(x, t[f"{p}.post_attention_layernorm.weight"], eps)
        gate = _linear(t, f"{p}.mlp.gate_proj", h)
        up = gate / (1 + np.exp(-gate)) * _linear(t, f"{p}.mlp.up_proj", h)
        x = x + share * _linear(t, f"{p}.mlp.down_proj", up)
    return _rms(x, t["model.norm.weight"], eps) @ t["lm_head.weight"].T / c.get("logits_scaling", 1.0)


def _is_sliding(c: Config, i: int) -> bool:
    """Every second layer of Gemma 2, all but every so many of Gemma 3."""
    if c["model_type"] == "gemma3_text":
        return (i + 1) % c["sliding_window_pattern"] != 0
    return c["model_type"] == "gemma2" and i % 2 == 0


def _gemma(c: Config, t: Tensors, tokens: A) -> A:
    eps, e = c["rms_norm_eps"], c["head_dim"]

    def norm(x: A, name: str) -> A:
        return _rms(x, 1 + t[f"{name}.weight"], eps)

    x = t["model.embed_tokens.weight"][tokens] * sqrt(c["hidden_size"])
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        sliding, theta, factor = _is_sliding(c, i), c["rope_theta"], 1.0
        if c["model_type"] == "gemma3_text":
            theta, factor = (
                (c["rope_local_base_freq"], 1.0) if sliding else (theta, c["rope_scaling"]["factor"])
            )
        q, k, v = _heads(c, t, f"{p}.self_attn", norm(x, f"{p}.input_layernorm"))
        if c["model_type"] == "gemma3_text":
            q = [norm(head, f"{p}.self_attn.q_norm") for head in q]
            k = [norm(head, f"{p}.self_attn.k_norm") for head in k]
        heads = [
            _attend(
                _turn(q[j], theta, factor), _turn(k[m], theta, factor), v[m],
                c.get("query_pre_attn_scalar", e) ** -0.5, window=c["sliding_window"] if sliding else 0,
                cap=c.get("attn_logit_softcapping"),
            )
            for j in range(len(q))
            for m in (j * len(k) // len(q),)
        ]  # fmt: skip
        y = _linear(t, f"{p}.self_attn.o_proj", np.concatenate(heads, -1))
        single = c["model_type"] == "gemma"
        x = x + (y if single else norm(y, f"{p}.post_attention_layernorm"))
        h = norm(x, f"{p}.post_attention_layernorm" if single else f"{p}.pre_feedforward_layernorm")
        up = _gelu(_linear(t, f"{p}.mlp.gate_proj", h)) * _linear(t, f"{p}.mlp.up_proj", h)
        y = _linear(t, f"{p}.mlp.down_proj", up)
        x = x + (y if single else norm(y, f"{p}.post_feedforward_layernorm"))
    out = norm(x, "model.norm") @ t["model.embed_tokens.weight"].T
    cap = c.get("final_logit_softcapping")
    return out if cap is None else cap * np.tanh(out / cap)
