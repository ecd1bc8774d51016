"""Falcon, GPT-J, StableLM with normed heads, Phi-3 with groups and mixtures of experts as Hugging Face defines them.

In plain NumPy, written from the modelling code of `transformers` and sharing nothing with `wscc`: one sequence, token
by token and head by head where that is the definition.
"""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np

A = np.ndarray
Config = dict[str, Any]
Tensors = dict[str, A]
Shapes = dict[str, tuple[int, ...]]
KINDS = ("falcon", "gptj", "mixtral", "qwen2_moe", "olmoe", "qwen3_moe")


def is_later(c: Config) -> bool:
    groups = c["model_type"] == "phi3" and c["num_key_value_heads"] != c["num_attention_heads"]
    return c["model_type"] in KINDS or groups or bool(c.get("qk_layernorm"))


def shapes(c: Config) -> Shapes:
    """The shapes of all tensors of the model with a language head, by name."""
    own = {"falcon": _falcon_shapes, "gptj": _gptj_shapes}.get(c["model_type"])
    return own(c) if own else _llama_shapes(c)


def logits(c: Config, t: Tensors, tokens: A) -> A:
    """The logits [tokens, vocabulary] of one sequence."""
    return {"falcon": _falcon, "gptj": _gptj}.get(c["model_type"], _llama)(c, t, tokens)


# ---- parts


def _rms(x: A, gain: A, eps: float) -> A:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def _layer_norm(x: A, gain: A, bias: A | float, eps: float) -> A:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain + bias


def _turn(x: A, theta: float) -> A:
    """A head [seq, e] by `rotate_half`."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(len(x)), theta ** (-np.arange(half) / half))
    both = np.concatenate((angles, angles), -1)
    return x * np.cos(both) + np.concatenate((-x[:, half:], x[:, :half]), -1) * np.sin(both)


def _attend(q: A, k: A, v: A) -> A:
    scores = q @ k.T / sqrt(q.shape[-1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def _linear(t: Tensors, name: str, x: A) -> A:
    return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0)


def _silu(x: A) -> A:
    return x / (1 + np.exp(-x))


def _add(out: Shapes, name: str, rows: int, columns: int, biased: bool = False) -> None:
    out[f"{name}.weight"] = (rows, columns)
    if biased:
        out[f"{name}.bias"] = (rows,)


# ---- Falcon


def _falcon_heads(c: Config) -> tuple[int, int, int]:
    n = c["num_attention_heads"]
    kv = c["num_kv_heads"] if c["new_decoder_architecture"] else 1 if c["multi_query"] else n
    return n, kv, c["hidden_size"] // n


def _falcon_norms(c: Config) -> tuple[str, ...]:
    if not c["parallel_attn"]:
        return ("input_layernorm", "post_attention_layernorm")
    return ("ln_attn", "ln_mlp") if c["new_decoder_architecture"] else ("input_layernorm",)


def _falcon_shapes(c: Config) -> Shapes:
    d, v, f = c["hidden_size"], c["vocab_size"], c.get("ffn_hidden_size") or 4 * c["hidden_size"]
    n, kv, e = _falcon_heads(c)
    out: Shapes = {"transformer.word_embeddings.weight": (v, d)}
    norms = ["transformer.ln_f"]
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}"
        norms += [f"{p}.{name}" for name in _falcon_norms(c)]
        _add(out, f"{p}.self_attention.query_key_value", (n + 2 * kv) * e, d, c["bias"])
        _add(out, f"{p}.self_attention.dense", d, d, c["bias"])
        _add(out, f"{p}.mlp.dense_h_to_4h", f, d, c["bias"])
        _add(out, f"{p}.mlp.dense_4h_to_h", d, f, c["bias"])
    for name in norms:
        out[f"{name}.weight"] = out[f"{name}.bias"] = (d,)
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (v, d)
    return out


def _falcon(c: Config, t: Tensors, tokens: A) -> A:
    n, kv, e = _falcon_heads(c)

    def norm(x: A, name: str) -> A:
        return _layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_epsilon"])

    x = t["transformer.word_embeddings.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}"
        h = [norm(x, f"{p}.{name}") for name in _falcon_norms(c)]
        fused = _linear(t, f"{p}.self_attention.query_key_value", h[0]).reshape(len(x), kv, n // kv + 2, e)
        heads = [
            _attend(
                _turn(fused[:, j // (n // kv), j % (n // kv)], c["rope_theta"]),
                _turn(fused[:, j // (n // kv), -2], c["rope_theta"]),
                fused[:, j // (n // kv), -1],
            )
            for j in range(n)
        ]
        attended = _linear(t, f"{p}.self_attention.dense", np.concatenate(heads, -1))
        h = h[-1] if c["parallel_attn"] else norm(x + attended, f"{p}.post_attention_layernorm")
        up = _linear(t, f"{p}.mlp.dense_h_to_4h", h)
        up = up * np.vectorize(lambda z: 0.5 * (1 + erf(z / sqrt(2))))(up)
        x = x + attended + _linear(t, f"{p}.mlp.dense_4h_to_h", up)
    return norm(x, "transformer.ln_f") @ t.get("lm_head.weight", t["transformer.word_embeddings.weight"]).T


# ---- GPT-J


def _gptj_shapes(c: Config) -> Shapes:
    d, v, f = c["n_embd"], c["vocab_size"], c["n_inner"]
    out: Shapes = {"transformer.wte.weight": (v, d), "lm_head.weight": (v, d), "lm_head.bias": (v,)}
    for name in ["ln_f", *(f"h.{i}.ln_1" for i in range(c["n_layer"]))]:
        out[f"transformer.{name}.weight"] = out[f"transformer.{name}.bias"] = (d,)
    for i in range(c["n_layer"]):
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            _add(out, f"transformer.h.{i}.attn.{name}", d, d)
        _add(out, f"transformer.h.{i}.mlp.fc_in", f, d, True)
        _add(out, f"transformer.h.{i}.mlp.fc_out", d, f, True)
    return out


def _turn_neighbours(x: A, width: int) -> A:
    """A head [seq, e] by `rotate_every_two`, of its first elements."""
    out = x.copy()
    for position in range(len(x)):
        for i in range(0, width, 2):
            angle = position / 10000 ** (i / width)
            turned = (x[position, i] + 1j * x[position, i + 1]) * np.exp(1j * angle)
            out[position, i], out[position, i + 1] = turned.real, turned.imag
    return out


def _gptj(c: Config, t: Tensors, tokens: A) -> A:
    n = c["n_head"]

    def norm(x: A, name: str) -> A:
        return _layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_epsilon"])

    x = t["transformer.wte.weight"][tokens]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}"
        h = norm(x, f"{p}.ln_1")
        q, k, v = (np.split(_linear(t, f"{p}.attn.{name}_proj", h), n, -1) for name in "qkv")
        heads = [
            _attend(_turn_neighbours(q[j], c["rotary_dim"]), _turn_neighbours(k[j], c["rotary_dim"]), v[j])
            for j in range(n)
        ]
        up = _linear(t, f"{p}.mlp.fc_in", h)
        up = 0.5 * up * (1 + np.tanh(sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        attended = _linear(t, f"{p}.attn.out_proj", np.concatenate(heads, -1))
        x = x + attended + _linear(t, f"{p}.mlp.fc_out", up)
    return _linear(t, "lm_head", norm(x, "transformer.ln_f"))


# ---- what is like Llama


def _experts_of(c: Config) -> tuple[str, tuple[str, str, str], int, int]:
    """The names of the mixture and of gate, up and down of an expert, how many there are, and their width."""
    if c["model_type"] == "mixtral":
        return "block_sparse_moe", ("w1", "w3", "w2"), c["num_local_experts"], c["intermediate_size"]
    width = c["intermediate_size"] if c["model_type"] == "olmoe" else c["moe_intermediate_size"]
    return "mlp", ("gate_proj", "up_proj", "down_proj"), c["num_experts"], width


def _llama_shapes(c: Config) -> Shapes:
    d, v, n, kv = (c[k] for k in ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads"))
    e = c.get("head_dim") or d // n
    out: Shapes = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,), "lm_head.weight": (v, d)}
    norms = ["model.norm"]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        norms += [f"{p}.input_layernorm", f"{p}.post_attention_layernorm"]
        if c["model_type"] == "phi3":
            _add(out, f"{p}.self_attn.qkv_proj", (n + 2 * kv) * e, d)
            _add(out, f"{p}.mlp.gate_up_proj", 2 * c["intermediate_size"], d)
            _add(out, f"{p}.mlp.down_proj", d, c["intermediate_size"])
        else:
            for name, rows in (("q", n * e), ("k", kv * e), ("v", kv * e)):
                _add(out, f"{p}.self_attn.{name}_proj", rows, d, c["model_type"] == "qwen2_moe")
        _add(out, f"{p}.self_attn.o_proj", d, n * e)
        if c["model_type"] == "stablelm":
            _add_gated(out, f"{p}.mlp", ("gate_proj", "up_proj", "down_proj"), d, c["intermediate_size"])
            for name, heads in (("q", n), ("k", kv)):
                for j in range(heads):
                    out[f"{p}.self_attn.{name}_layernorm.norms.{j}.weight"] = (e,)
        elif c["model_type"] != "phi3":
            _add_mixture(c, out, p, d)
        for name, count in (("q", n), ("k", kv)):
            if c["model_type"] in ("olmoe", "qwen3_moe"):
                size = count * e if c["model_type"] == "olmoe" else e
                out[f"{p}.self_attn.{name}_norm.weight"] = (size,)
    for name in norms:
        out[f"{name}.weight"] = (d,)
        if c["model_type"] == "stablelm":
            out[f"{name}.bias"] = (d,)
    return out


def _add_gated(out: Shapes, place: str, names: tuple[str, str, str], d: int, width: int) -> None:
    gate, up, down = (f"{place}.{name}" for name in names)
    _add(out, gate, width, d)
    _add(out, up, width, d)
    _add(out, down, d, width)


def _add_mixture(c: Config, out: Shapes, p: str, d: int) -> None:
    place, names, count, width = _experts_of(c)
    _add(out, f"{p}.{place}.gate", count, d)
    for j in range(count):
        _add_gated(out, f"{p}.{place}.experts.{j}", names, d, width)
    if c["model_type"] == "qwen2_moe":
        _add_gated(out, f"{p}.mlp.shared_expert", names, d, c["shared_expert_intermediate_size"])
        _add(out, f"{p}.mlp.shared_expert_gate", 1, d)


def _gated(t: Tensors, place: str, names: tuple[str, str, str], x: A) -> A:
    gate, up, down = (f"{place}.{name}" for name in names)
    return _linear(t, down, _silu(_linear(t, gate, x)) * _linear(t, up, x))


def _mixture(c: Config, t: Tensors, p: str, h: A) -> A:
    """Token by token: the experts with the largest of softmax."""
    place, names, _, _ = _experts_of(c)
    out = np.zeros_like(h)
    for n, token in enumerate(h):
        scores = _linear(t, f"{p}.{place}.gate", token)
        p_of = np.exp(scores - scores.max())
        p_of /= p_of.sum()
        chosen = np.argsort(-p_of)[: c["num_experts_per_tok"]]
        total = p_of[chosen].sum() if c["model_type"] == "mixtral" or c.get("norm_topk_prob") else 1
        for j in chosen:
            out[n] += p_of[j] / total * _gated(t, f"{p}.{place}.experts.{j}", names, token)
        if c["model_type"] == "qwen2_moe":
            share = 1 / (1 + np.exp(-_linear(t, f"{p}.mlp.shared_expert_gate", token)))
            out[n] += share * _gated(t, f"{p}.mlp.shared_expert", names, token)
    return out


def _llama_heads(c: Config, t: Tensors, p: str, h: A) -> list[list[A]]:
    n, kv = c["num_attention_heads"], c["num_key_value_heads"]
    e = c.get("head_dim") or c["hidden_size"] // n
    if c["model_type"] == "phi3":
        q, k, v = np.split(_linear(t, f"{p}.self_attn.qkv_proj", h), [n * e, (n + kv) * e], -1)
    else:
        q, k, v = (_linear(t, f"{p}.self_attn.{name}_proj", h) for name in "qkv")
    if c["model_type"] == "olmoe":
        q = _rms(q, t[f"{p}.self_attn.q_norm.weight"], c["rms_norm_eps"])
        k = _rms(k, t[f"{p}.self_attn.k_norm.weight"], c["rms_norm_eps"])
    out = [np.split(q, n, -1), np.split(k, kv, -1), np.split(v, kv, -1)]
    for heads, name in zip(out, "qk", strict=False):
        place = f"{p}.self_attn.{name}"
        for j, x in enumerate(heads):
            if c["model_type"] == "stablelm":
                heads[j] = _layer_norm(x, t[f"{place}_layernorm.norms.{j}.weight"], 0, c["layer_norm_eps"])
            elif c["model_type"] == "qwen3_moe":
                heads[j] = _rms(x, t[f"{place}_norm.weight"], c["rms_norm_eps"])
    return out


def _llama(c: Config, t: Tensors, tokens: A) -> A:
    def norm(x: A, name: str) -> A:
        if f"{name}.bias" in t:
            return _layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_eps"])
        return _rms(x, t[f"{name}.weight"], c["rms_norm_eps"])

    def turn(x: A) -> A:
        width = int(x.shape[-1] * c.get("partial_rotary_factor", 1))
        return np.concatenate((_turn(x[:, :width], c["rope_theta"]), x[:, width:]), -1)

    x = t["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        q, k, v = _llama_heads(c, t, p, norm(x, f"{p}.input_layernorm"))
        group = len(q) // len(k)
        heads = [_attend(turn(q[j]), turn(k[j // group]), v[j // group]) for j in range(len(q))]
        x = x + _linear(t, f"{p}.self_attn.o_proj", np.concatenate(heads, -1))
        h = norm(x, f"{p}.post_attention_layernorm")
        if c["model_type"] == "phi3":
            gate, up = np.split(_linear(t, f"{p}.mlp.gate_up_proj", h), 2, -1)
            x = x + _linear(t, f"{p}.mlp.down_proj", _silu(gate) * up)
        elif c["model_type"] == "stablelm":
            x = x + _gated(t, f"{p}.mlp", ("gate_proj", "up_proj", "down_proj"), h)
        else:
            x = x + _mixture(c, t, p, h)
    return norm(x, "model.norm") @ t["lm_head.weight"].T
