"""The samples once more, built in Python."""

from __future__ import annotations

import wscc
from tests.support.paths import ROOT
from wscc import nn

_DIE = {
    "peak": "1800 TFLOP/s", "sram": "80 MB", "hbm": "72 GB at 1 TB/s", "tile": 128, "efficiency": "2 TFLOP/s/W",
}  # fmt: skip
_LINK = {"bandwidth": "4 TB/s", "latency": "200 ns", "flit": "64 B", "energy": "5 pJ/bit", "channels": 2}


def tray(**changes: object) -> wscc.Wafer:
    return wscc.Wafer("tray", **{"mesh": (2, 4), "die": _DIE, "link": _LINK, **changes})  # type: ignore[arg-type]


def gpt_tiny() -> wscc.Train:
    m = wscc.Model("gpt", layers=4, d=64, heads=4, vocab=256, seq=64)
    tokens, labels = (m.input(name, m.batch, m.seq) for name in ("tokens", "labels"))
    wte = m.param("wte", (m.vocab, m.d), wscc.normal(0.05))
    wpe = m.param("wpe", (m.seq, m.d), wscc.normal(0.05))
    x = m.let("x", nn.embedding(tokens, wte) + wpe)
    with m.repeat("block", m.layers):
        g1, b1 = m.param("g1", (m.d,), "ones"), m.param("b1", (m.d,))
        wqkv = m.param("wqkv", (m.d, 3, m.heads, m.d / m.heads), wscc.normal(0.05))
        bqkv = m.param("bqkv", (3, m.heads, m.d / m.heads))
        wo = m.param("wo", (m.heads, m.d / m.heads, m.d), wscc.normal(0.01))
        bo = m.param("bo", (m.d,))
        h = m.let("h", nn.layernorm(x, g1, b1))
        q, k, v = m.parts("q k v", nn.split(nn.project(h, wqkv) + bqkv))
        x = m.let("x", x + nn.project(nn.attention(q, k, v, causal=True), wo) + bo)
        g2, b2 = m.param("g2", (m.d,), "ones"), m.param("b2", (m.d,))
        wup, bup = m.param("wup", (m.d, 4 * m.d), wscc.normal(0.05)), m.param("bup", (4 * m.d,))
        wdown, bdown = m.param("wdown", (4 * m.d, m.d), wscc.normal(0.01)), m.param("bdown", (m.d,))
        h = m.let("h", nn.layernorm(x, g2, b2))
        x = m.let("x", x + nn.gelu(h @ wup + bup) @ wdown + bdown)
    gf, bf = m.param("gf", (m.d,), "ones"), m.param("bf", (m.d,))
    m.loss(nn.cross_entropy(nn.layernorm(x, gf, bf) @ nn.transpose(wte), labels))
    return wscc.Train(
        m, tray(), batch=16, microbatch=4, data=str(ROOT / "samples" / "tiny-text.txt"),
        optimizer=wscc.adamw(lr=1e-3, weight_decay=0.01), clip=1.0, lr_schedule=wscc.warmup(20), dtype="f32",
        recompute="none", parallel={"dp": 2, "tatp": 2, "tp": 2},
    )  # fmt: skip


def llama_tiny() -> wscc.Train:
    m = wscc.Model("llama", layers=4, d=64, heads=4, kv=2, ffn=176, vocab=256, seq=64)
    tokens, labels = (m.input(name, m.batch, m.seq) for name in ("tokens", "labels"))
    wte = m.param("wte", (m.vocab, m.d), wscc.normal(0.05))
    x = m.let("x", nn.embedding(tokens, wte))
    head, group = m.d / m.heads, m.heads / m.kv
    with m.repeat("block", m.layers):
        g1 = m.param("g1", (m.d,), "ones")
        wq = m.param("wq", (m.d, m.kv, group, head), wscc.normal(0.05))
        wk = m.param("wk", (m.d, m.kv, head), wscc.normal(0.05))
        wv = m.param("wv", (m.d, m.kv, head), wscc.normal(0.05))
        wo = m.param("wo", (m.kv, group, head, m.d), wscc.normal(0.02))
        h = m.let("h", nn.rmsnorm(x, g1))
        q = m.let("q", nn.rope(nn.project(h, wq)))
        k = m.let("k", nn.rope(nn.project(h, wk)))
        x = m.let("x", x + nn.project(nn.attention(q, k, nn.project(h, wv), causal=True), wo))
        g2 = m.param("g2", (m.d,), "ones")
        wgate, wup = (m.param(name, (m.d, m.ffn), wscc.normal(0.05)) for name in ("wgate", "wup"))
        wdown = m.param("wdown", (m.ffn, m.d), wscc.normal(0.02))
        h = m.let("h", nn.rmsnorm(x, g2))
        x = m.let("x", x + nn.swiglu(h @ wgate, h @ wup) @ wdown)
    gf = m.param("gf", (m.d,), "ones")
    logits = nn.rmsnorm(x, gf) @ m.param("head", (m.d, m.vocab), wscc.normal(0.05))
    m.loss(nn.cross_entropy(logits, labels))
    return wscc.Train(
        m, tray(), batch=16, microbatch=4, data=str(ROOT / "samples" / "tiny-text.txt"),
        optimizer=wscc.adamw(lr=2e-3, weight_decay=0.01), clip=1.0, lr_schedule=wscc.warmup(20), dtype="f32",
        recompute="none", parallel="pp = 2, sp = 2, tp = 2",
    )  # fmt: skip
