"""Models as Hugging Face defines them: the tensors of a checkpoint, and its loss, in plain NumPy.

GPT-2, OPT, Llama and Qwen2 are here, others in `huggingface_rotary`, `huggingface_later` and `huggingface_newer`.

Written from the definitions of `transformers` and sharing nothing with `wscc`: shapes and names are spelled out, a
head is cut out of a row of `hidden_size` numbers, positions are turned by `rotate_half`.
"""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np

from tests.oracles import huggingface_later as later
from tests.oracles import huggingface_newer as newer
from tests.oracles import huggingface_rotary as rotary

A = np.ndarray
Config = dict[str, Any]


def shapes(c: Config) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors that `save_pretrained` of the model with a language head writes, by name."""
    families = {"gpt2": _gpt2_shapes, "opt": _opt_shapes, "llama": _llama_shapes, "qwen2": _llama_shapes}
    if newer.is_newer(c):
        return newer.shapes(c)
    if later.is_later(c):
        return later.shapes(c)
    if c["model_type"] in rotary.SHAPES or "rope_scaling" in c:
        return rotary.shapes(c)
    out = families[c["model_type"]](c)
    if not c.get("tie_word_embeddings", c["model_type"] in ("gpt2", "opt")):
        out["lm_head.weight"] = (c["vocab_size"], c.get("n_embd") or c["hidden_size"])
    return out


def _gpt2_shapes(c: Config) -> dict[str, tuple[int, ...]]:
    d, f = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    out: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (c["vocab_size"], d),
        "transformer.wpe.weight": (c["n_positions"], d),
        "transformer.ln_f.weight": (d,),
        "transformer.ln_f.bias": (d,),
    }
    for i in range(c["n_layer"]):
        for name, n in (("ln_1", d), ("ln_2", d)):
            out[f"transformer.h.{i}.{name}.weight"] = out[f"transformer.h.{i}.{name}.bias"] = (n,)
        for name, rows, columns in (
            ("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, f), ("mlp.c_proj", f, d),
        ):  # fmt: skip
            out[f"transformer.h.{i}.{name}.weight"] = (rows, columns)
            out[f"transformer.h.{i}.{name}.bias"] = (columns,)
    return out


def _opt_shapes(c: Config) -> dict[str, tuple[int, ...]]:
    d, f = c["hidden_size"], c["ffn_dim"]
    out: dict[str, tuple[int, ...]] = {
        "model.decoder.embed_tokens.weight": (c["vocab_size"], d),
        "model.decoder.embed_positions.weight": (c["max_position_embeddings"] + 2, d),
        "model.decoder.final_layer_norm.weight": (d,),
        "model.decoder.final_layer_norm.bias": (d,),
    }
    for i in range(c["num_hidden_layers"]):
        layer = f"model.decoder.layers.{i}"
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            out[f"{layer}.{name}.weight"] = out[f"{layer}.{name}.bias"] = (d,)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            out[f"{layer}.self_attn.{name}.weight"], out[f"{layer}.self_attn.{name}.bias"] = (d, d), (d,)
        out[f"{layer}.fc1.weight"], out[f"{layer}.fc1.bias"] = (f, d), (f,)
        out[f"{layer}.fc2.weight"], out[f"{layer}.fc2.bias"] = (d, f), (d,)
    return out


def _llama_shapes(c: Config) -> dict[str, tuple[int, ...]]:
    d, f, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    e = c.get("head_dim") or d // heads
    wide, narrow = heads * e, c["num_key_value_heads"] * e
    qwen = c["model_type"] == "qwen2"
    attention, mlp = c.get("attention_bias", False), c.get("mlp_bias", False)
    linear = {
        "self_attn.q_proj": (wide, d, qwen or attention), "self_attn.k_proj": (narrow, d, qwen or attention),
        "self_attn.v_proj": (narrow, d, qwen or attention), "self_attn.o_proj": (d, wide, attention),
        "mlp.gate_proj": (f, d, mlp), "mlp.up_proj": (f, d, mlp), "mlp.down_proj": (d, f, mlp),
    }  # fmt: skip
    out: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c["vocab_size"], d),
        "model.norm.weight": (d,),
    }
    for i in range(c["num_hidden_layers"]):
        out[f"model.layers.{i}.input_layernorm.weight"] = (d,)
        out[f"model.layers.{i}.post_attention_layernorm.weight"] = (d,)
        for name, (rows, columns, biased) in linear.items():
            out[f"model.layers.{i}.{name}.weight"] = (rows, columns)
            if biased:
                out[f"model.layers.{i}.{name}.bias"] = (rows,)
    return out


def random_checkpoint(c: Config, seed: int = 0) -> dict[str, A]:
    """A random checkpoint in which nothing is 0 or 1, so that a tensor in the wrong place shows."""
    rng = np.random.default_rng(seed)
    return {
        name: (
            rng.normal(size=s) * 0.3 + ("norm" in name or "ln_" in name) * (name.endswith("weight"))
        ).astype(np.float32)
        for name, s in shapes(c).items()
    }


# ---- the forward passes


def loss(c: Config, tensors: dict[str, A], tokens: A) -> float:
    """The mean cross entropy of one sequence [tokens], each token predicting the next, in float64."""
    t = {name: x.astype(np.float64) for name, x in tensors.items()}
    if newer.is_newer(c):
        return _cross_entropy(newer.logits(c, t, tokens[:-1]), tokens)
    if later.is_later(c):
        return _cross_entropy(later.logits(c, t, tokens[:-1]), tokens)
    if c["model_type"] in rotary.SHAPES or "rope_scaling" in c:
        return _cross_entropy(rotary.logits(c, t, tokens[:-1]), tokens)
    table = next(name for name in t if name.endswith(("wte.weight", "embed_tokens.weight")))
    t.setdefault("lm_head.weight", t[table])
    kind = c["model_type"]
    logits = {"gpt2": _gpt2, "opt": _opt, "llama": _llama, "qwen2": _llama}[kind](c, t, tokens[:-1])
    return _cross_entropy(logits, tokens)


def _cross_entropy(logits: A, tokens: A) -> float:
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return float(-np.mean([log_p[i, t] for i, t in enumerate(tokens[1:])]))


def _softmax(x: A) -> A:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: A, t: dict[str, A], name: str, eps: float) -> A:
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * t[f"{name}.weight"]
        + t[f"{name}.bias"]
    )


def _rms_norm(x: A, gain: A, eps: float) -> A:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def _attend(q: A, k: A, v: A) -> A:
    """Causal attention of one head, [seq, e] each."""
    scores = q @ k.T / sqrt(q.shape[-1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    return _softmax(scores) @ v


def _heads(x: A, count: int) -> list[A]:
    """Rows [seq, count x e] split into heads [seq, e]."""
    return np.split(x, count, axis=-1)


ACT = {
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
}


def _gpt2(c: Config, t: dict[str, A], tokens: A) -> A:
    eps = c.get("layer_norm_epsilon", 1e-5)

    def conv(x: A, name: str) -> A:
        return x @ t[f"{name}.weight"] + t[f"{name}.bias"]

    x = t["transformer.wte.weight"][tokens] + t["transformer.wpe.weight"][: len(tokens)]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}"
        q, k, v = np.split(conv(_layer_norm(x, t, f"{p}.ln_1", eps), f"{p}.attn.c_attn"), 3, axis=-1)
        n = c["n_head"]
        heads = [_attend(*three) for three in zip(_heads(q, n), _heads(k, n), _heads(v, n), strict=True)]
        x = x + conv(np.concatenate(heads, -1), f"{p}.attn.c_proj")
        up = conv(_layer_norm(x, t, f"{p}.ln_2", eps), f"{p}.mlp.c_fc")
        x = x + conv(ACT[c.get("activation_function", "gelu_new")](up), f"{p}.mlp.c_proj")
    return _layer_norm(x, t, "transformer.ln_f", eps) @ t["lm_head.weight"].T


def _linear(x: A, t: dict[str, A], name: str) -> A:
    return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0)


def _opt(c: Config, t: dict[str, A], tokens: A) -> A:
    root, n = "model.decoder", c["num_attention_heads"]
    positions = np.arange(len(tokens)) + 2  # OPTLearnedPositionalEmbedding
    x = t[f"{root}.embed_tokens.weight"][tokens] + t[f"{root}.embed_positions.weight"][positions]
    for i in range(c["num_hidden_layers"]):
        p = f"{root}.layers.{i}"
        h = _layer_norm(x, t, f"{p}.self_attn_layer_norm", 1e-5)
        q, k, v = (_heads(_linear(h, t, f"{p}.self_attn.{name}_proj"), n) for name in "qkv")
        heads = [_attend(*three) for three in zip(q, k, v, strict=True)]
        x = x + _linear(np.concatenate(heads, -1), t, f"{p}.self_attn.out_proj")
        up = _linear(_layer_norm(x, t, f"{p}.final_layer_norm", 1e-5), t, f"{p}.fc1")
        x = x + _linear(ACT[c.get("activation_function", "relu")](up), t, f"{p}.fc2")
    return _layer_norm(x, t, f"{root}.final_layer_norm", 1e-5) @ t["lm_head.weight"].T


def _rotate_half(x: A) -> A:
    half = x.shape[-1] // 2
    return np.concatenate((-x[:, half:], x[:, :half]), -1)


def _rotary(x: A, theta: float) -> A:
    e = x.shape[-1]
    inverse = 1.0 / theta ** (np.arange(0, e, 2) / e)
    angles = np.outer(np.arange(len(x)), inverse)
    both = np.concatenate((angles, angles), -1)
    return x * np.cos(both) + _rotate_half(x) * np.sin(both)


def _llama(c: Config, t: dict[str, A], tokens: A) -> A:
    n, kv, theta, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rope_theta"], c["rms_norm_eps"]
    x = t["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        h = _rms_norm(x, t[f"{p}.input_layernorm.weight"], eps)
        q = [_rotary(head, theta) for head in _heads(_linear(h, t, f"{p}.self_attn.q_proj"), n)]
        k = [_rotary(head, theta) for head in _heads(_linear(h, t, f"{p}.self_attn.k_proj"), kv)]
        v = _heads(_linear(h, t, f"{p}.self_attn.v_proj"), kv)
        heads = [_attend(q[j], k[j // (n // kv)], v[j // (n // kv)]) for j in range(n)]  # repeat_kv
        x = x + _linear(np.concatenate(heads, -1), t, f"{p}.self_attn.o_proj")
        h = _rms_norm(x, t[f"{p}.post_attention_layernorm.weight"], eps)
        gate = _linear(h, t, f"{p}.mlp.gate_proj")
        x = x + _linear(
            gate / (1 + np.exp(-gate)) * _linear(h, t, f"{p}.mlp.up_proj"), t, f"{p}.mlp.down_proj"
        )
    return _rms_norm(x, t["model.norm.weight"], eps) @ t["lm_head.weight"].T
