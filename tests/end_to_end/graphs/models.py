"""Graph networks in the language, and the same in PyTorch with a dense adjacency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

NODES: Final = 24
TEXT: Final = """
wafer w {{ mesh 2 x 4  die {{ peak 1 TFLOP/s, sram 80 MB }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model gcn(nodes = 24, edges = {edges}, features = 4, d = 8, classes = 4) {{
  input adjacency : edges[edges]
  input x : f32[batch, nodes, features]
  input labels : i32[batch, nodes]
  param w0 : [features, d] init normal(0.5)
  h = x @ w0
  repeat {layers} as layer {{
    param w : [d, d] init normal(0.3)
    param b : [d] init normal(0.3)
    h = h + gelu(spmm(adjacency, h @ w{weights}) + b)
  }}
  {attention}  param head : [d, classes] init normal(0.5)
  loss cross_entropy(spmm(adjacency, h, mean) @ head, labels)
}}
train gcn on w {{
  data "graph.npz"
  batch {batch}  microbatch {micro}
  optimizer adamw(lr = 1e-2, eps = 1e-5, weight_decay = 0.1)  clip 0.5
  dtype compute f64, params f64, grads f64
  recompute {recompute}
  parallel {parallel}
}}
"""
# A layer of graph attention of two heads.
ATTENTION: Final = """param wv : [d, 2, d / 2] init normal(0.3)
  param to : [d, 2] init normal(0.5)
  param src : [d, 2] init normal(0.5)
  param wo : [2, d / 2, d] init normal(0.3)
  v = project(h, wv)
  h = h + project(edge_attention(adjacency, h @ to, h @ src, v, slope = 0.1), wo)
  """


# A layer that takes the largest of all that edges bring, among them many equal zeros, and one with a trained weight on
# each edge.
MAX_AND_WEIGHTS: Final = """param wm : [d, d] init normal(0.5)
  param on : [edges] init normal(0.5)
  h = h + edge_max(adjacency, relu(h @ wm))
  h = h + edge_sum(adjacency, h @ wm, on)
  """


def chain_of_groups() -> NDArray[np.int64]:
    """Edges (to, from) within groups of three nodes and from one group to the next, of nodes numbered at random; some
    twice, none to node 0."""
    rng = np.random.default_rng(5)
    group = np.arange(NODES) // 3
    near = [(n, m) for n in range(NODES) for m in range(NODES) if 0 <= group[m] - group[n] <= 1]
    edges = rng.permutation(NODES)[[e for e in near if rng.random() < 0.7]]
    edges = edges[edges[:, 0] != 0]
    return np.concatenate([edges, edges[:5]])


def far_groups() -> NDArray[np.int64]:
    """Edges from each group of three nodes to the one three further on, on a ring of 8: whole shards are relayed."""
    return np.array([(n, (n + 9 + i) % NODES) for n in range(NODES) for i in range(2)] + [(3, 3)])


def everywhere() -> NDArray[np.int64]:
    """An edge from each node to each: no order of nodes leaves two parts without one."""
    return np.argwhere(np.ones((NODES, NODES), bool))


def write_graph(folder: Path, edges: NDArray[Any], rows: int = 4) -> None:
    """Floats and labels of `rows` graphs with these edges; some nodes have no label."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 4, (rows, NODES))
    labels[rng.random(labels.shape) < 0.3] = -100
    x = rng.standard_normal((rows, NODES, 4)).astype(np.float32)
    np.savez(folder / "graph.npz", adjacency=edges, x=x, labels=labels)


def text(
    parallel: str, edges: int, *, weights: str = ", symmetric", layers: int = 2, batch: int = 1, micro: int = 1,
    recompute: str = "none", attention: str = ATTENTION,
) -> str:  # fmt: skip
    return TEXT.format(
        parallel=parallel, edges=edges, weights=weights, layers=layers, batch=batch, micro=micro,
        recompute=recompute, attention=attention,
    )  # fmt: skip


def dense(edges: NDArray[Any], weights: str) -> NDArray[np.float64]:
    """The adjacency as a matrix, edge by edge."""
    matrix = np.zeros((NODES, NODES))
    for n, m in edges:
        matrix[n, m] += 1
    degrees = matrix.sum(1)
    for n, m in np.argwhere(matrix):
        if weights == "mean":
            matrix[n, m] /= degrees[n]
        elif weights == "symmetric":
            matrix[n, m] /= np.sqrt(degrees[n] * max(degrees[m], 1))
    return matrix


def _attention(w: dict[str, torch.Tensor], h: torch.Tensor, edges: NDArray[Any]) -> torch.Tensor:
    """Graph attention with a score for each pair of nodes; an edge that is there twice counts twice."""
    import torch

    counts = np.zeros((NODES, NODES))
    np.add.at(counts, (edges[:, 0], edges[:, 1]), 1)
    scores = torch.nn.functional.leaky_relu((h @ w["to"])[:, :, None] + (h @ w["src"])[:, None], 0.1)
    terms = torch.tensor(counts)[None, :, :, None] * scores.exp()
    shares = terms / terms.sum(2, keepdim=True).clamp(min=1e-300)
    return torch.einsum("bnmh,bmhf->bnhf", shares, torch.einsum("bmd,dhf->bmhf", h, w["wv"]))


def _max_and_weights(w: dict[str, torch.Tensor], h: torch.Tensor, edges: NDArray[Any]) -> torch.Tensor:
    """`scatter_reduce` shares a gradient equally among all that are the largest."""
    import torch

    to, source = torch.tensor(edges).T
    terms = (h @ w["wm"]).relu()[:, source]
    rows = to[None, :, None].expand_as(terms)
    h = h + torch.zeros_like(h).scatter_reduce(1, rows, terms, "amax", include_self=False)
    return h + torch.zeros_like(h).index_add(1, to, (h @ w["wm"])[:, source] * w["on"][:, None])


def loss_in_torch(
    w: dict[str, torch.Tensor], x: torch.Tensor, labels: torch.Tensor, edges: NDArray[Any], weights: str
) -> torch.Tensor:
    """The loss of `text`, with the layers that the parameters belong to."""
    import torch

    inner, outer = (torch.tensor(dense(edges, kind)) for kind in (weights, "mean"))
    h = x @ w["w0"]
    for weight, bias in zip(w["layer.w"], w["layer.b"], strict=True):
        h = h + torch.nn.functional.gelu(inner @ (h @ weight) + bias, approximate="tanh")
    if "on" in w:
        h = _max_and_weights(w, h, edges)
    else:
        h = h + torch.einsum("bnhf,hfd->bnd", _attention(w, h, edges), w["wo"])
    return torch.nn.functional.cross_entropy(((outer @ h) @ w["head"]).flatten(0, 1), labels.flatten())
