"""Declarations of the instructions of graph networks, a part of `wscc.ir.streams.instructions`.

`entries` are those of a block of edges in compressed rows: where each of n rows starts and the last one ends, then the
column of each entry. `numbers` are, of each entry, the place of its edge among all.
"""

from __future__ import annotations

from typing import Final

from wscc.ir.streams.instruction_def import InstructionDef, row

GRAPHS: Final[tuple[InstructionDef, ...]] = (
    row(
        "spmm",
        "y[b,n,d]",
        "entries[k] weights[e] x[b,m,d]",
        "accumulate",
        "y[b,i] = sum over entries j of row i of weights[j] x[b, column j], or +=; `entries` has where each of n rows "
        "starts and the last one ends, then the column of each entry",
        integers="entries",
        indexed="x",
        sums="weights",
    ),
    row(
        "edge_attention",
        "y[b,n,h,f]",
        "entries[k] s[b,n,h] t[b,m,h] v[b,m,h,f]",
        "slope",
        "y[b,i] = sum over entries j of row i of p[j] v[b, column j]; p: softmax of leaky_relu(s[i] + t[column j])",
        integers="entries",
        indexed="v",
    ),
    row(
        "edge_attention_bwd",
        "ds[b,n,h] dt[b,m,h] dv[b,m,h,f]",
        "entries[k] s[b,n,h] t[b,m,h] v[b,m,h,f] dy[b,n,h,f]",
        "slope",
        integers="entries",
        indexed="v",
    ),
    row(
        "edge_max",
        "y[b,n,d]",
        "entries[k] x[b,m,d]",
        "",
        "y[b,i] = the largest, element by element, of x[b, column j] over entries j of row i; 0 where there are none",
        integers="entries",
        indexed="x",
    ),
    row(
        "edge_max_bwd",
        "dx[b,m,d]",
        "entries[k] x[b,m,d] dy[b,n,d]",
        "",
        "dx[b,j] = sum over rows i of dy[b,i] over the number of entries that bring its maximum, for each that is j",
        integers="entries",
        indexed="x",
    ),
    row(
        "edge_sum",
        "y[b,n,d]",
        "entries[k] numbers[g] x[b,m,d] w[e]",
        "",
        "y[b,i] = sum over entries j of row i of w[numbers[j]] x[b, column j]",
        integers="entries numbers",
        indexed="x",
    ),
    row(
        "edge_sum_bwd",
        "dx[b,m,d] dw[e]",
        "entries[k] numbers[g] x[b,m,d] w[e] dy[b,n,d]",
        integers="entries numbers",
        indexed="x",
    ),
)
