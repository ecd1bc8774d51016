"""A mixture of experts in the language, and the same as anybody would write it in PyTorch, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

TEXT: Final = """
wafer w {{ mesh {mesh}  die {{ peak 1 TFLOP/s, sram 80 MB }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model m(d = 16, f = 8, experts = {experts}, vocab = 20, seq = 8) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.5)
  x = embedding(tokens, wte)
  repeat 2 as block {{
    param g : [d] init ones
    param wr : [d, experts] init normal(0.5)
    param wgate : [experts, d, f] init normal(0.3)
    param wup : [experts, d, f] init normal(0.3)
    param wdown : [experts, f, d] init normal(0.3)
    h = rmsnorm(x, g)
    logits = router(h, wr)
    gates, slots = route(logits{flag}, k = 2{capacity})
    y = dispatch(h, slots)
    x = x + combine(experts(swiglu(experts(y, wgate), experts(y, wup)), wdown), gates, slots)
    loss 0.1 * balance(logits, k = 2) + 0.01 * z_loss(logits)
  }}
  loss cross_entropy(x @ transpose(wte), labels)
}}
train m on w {{
  batch 8  microbatch {micro}
  optimizer adamw(lr = 1e-2, eps = 1e-5, weight_decay = 0.1)  clip 0.5
  dtype compute f64, params f64, grads f64
  recompute {recompute}
  parallel {parallel}
}}
"""


def text(
    parallel: str, *, experts: int = 4, flag: str = ", renormalise", capacity: str = ", capacity = 1",
    micro: int = 4, recompute: str = "none", mesh: str = "2 x 4",
) -> str:  # fmt: skip
    """The model; `parallel` may end with other settings."""
    return TEXT.format(
        parallel=parallel,
        experts=experts,
        flag=flag,
        capacity=capacity,
        micro=micro,
        recompute=recompute,
        mesh=mesh,
    )


def loss_in_torch(
    w: dict[str, torch.Tensor],
    tokens: torch.Tensor,
    labels: torch.Tensor,
    capacity: int,
    *,
    renormalise: bool,
) -> torch.Tensor:
    """The whole loss of a batch: each expert takes tokens of a sequence until it has `capacity`, the others pass by."""
    import torch
    import torch.nn.functional as F

    x = F.embedding(tokens, w["wte"])
    total = x.new_zeros(())
    for layer in range(2):
        p = {n.removeprefix("block."): t[layer] for n, t in w.items() if n.startswith("block.")}
        h = F.rms_norm(x, x.shape[-1:], p["g"], eps=1e-5)
        logits = h @ p["wr"]
        experts = logits.shape[-1]
        top, chosen = logits.softmax(-1).topk(2, dim=-1)
        gates = top / top.sum(-1, keepdim=True) if renormalise else top
        rows = []
        for b in range(len(x)):
            taken = [0] * experts
            for s in range(x.shape[1]):
                row = torch.zeros_like(x[b, s])
                for j, e in enumerate(chosen[b, s].tolist()):
                    if taken[e] < capacity:
                        t = h[b, s]
                        row = row + gates[b, s, j] * (
                            (F.silu(t @ p["wgate"][e]) * (t @ p["wup"][e])) @ p["wdown"][e]
                        )
                    taken[e] += 1
                rows.append(row)
        x = x + torch.stack(rows).reshape(x.shape)
        share = F.one_hot(chosen, experts).to(x.dtype).mean((1, 2))
        total = total + 0.1 * experts * (share * logits.softmax(-1).mean(1)).sum(-1).mean()
        total = total + 0.01 * logits.logsumexp(-1).square().mean()
    return total + F.cross_entropy((x @ w["wte"].T).flatten(0, 1), labels.flatten())
