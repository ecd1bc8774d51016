"""Declarations of the instructions of a die: operands, attributes and semantics, once for each.

Shapes are those of the operand views; `*` is any leading dims, the same throughout a row. Views may be strided
and, where only read, may repeat elements (stride 0). Sums of bf16 are taken in f32 and rounded once. `start`
attributes are global coordinates of the view's first row along the factor named; they may differ by die.

The NumPy semantics is the table `SEMANTICS` of `wscc.backends.interpreter.kernels.table`; a test holds both
tables to the same keys.
"""

from __future__ import annotations

from typing import Final

from wscc.ir.streams.graph_instructions import GRAPHS
from wscc.ir.streams.instruction_def import InstructionDef, row

_ALL: Final = (
    # -- data movement in the die's own memory
    row("copy", "y", "x", "", "y = x", any_type=True),
    row("cast", "y", "x", "", "y = x in y's element type", any_type=True),
    row("fill", "y", "", "value", "every element of y = value", any_type=True),
    row(
        "gather",
        "y[*,d]",
        "ids[*] table[v,d]",
        "start",
        "y = table[ids - start]; rows outside give 0",
        integers="ids",
        indexed="table",
    ),
    row(
        "scatter_add",
        "table[v,d]",
        "ids[*] dy[*,d]",
        "start accumulate",
        "table[ids - start] += dy, rows outside dropped; table is zeroed first unless accumulate",
        integers="ids",
        indexed="table",
    ),
    *GRAPHS,
    # -- contractions
    row(
        "gemm",
        "c[*,m,n]",
        "a[*,m,k] b[*,k,n]",
        "scale accumulate",
        "c = scale * (a @ b), or c += when accumulate; f32 (or f64) sums",
    ),
    row(
        "sum",
        "y",
        "x",
        "axes accumulate",
        "y = sum of x over `axes` (text, '0,1'; y has the others), or +=",
        gradients=True,
    ),
    row("rowdot", "r[*]", "a[*,e] b[*,e]", "", "r = sum over e of a * b", sums="r"),
    # -- elementwise
    row("add", "z", "x y", "", "z = x + y", gradients=True),
    row("sub", "z", "x y", "", "z = x - y", gradients=True),
    row("mul", "z", "x y", "", "z = x * y", gradients=True),
    row("div", "z", "x y", "", "z = x / y", gradients=True),
    row("maximum", "z", "x y", "", "z = max(x, y)", gradients=True),
    row("scale", "y", "x", "factor", "y = factor * x", gradients=True),
    row("gelu", "y", "x", "", "tanh approximation: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"),
    row("gelu_bwd", "dx", "x dy"),
    row("gelu_erf", "y", "x", "", "x/2 (1 + erf(x / sqrt 2))"),
    row("gelu_erf_bwd", "dx", "x dy"),
    row("soft_cap", "y", "x", "cap", "cap tanh(x / cap); y may be x itself"),
    row("soft_cap_bwd", "dx", "x dy", "cap", "dy (1 - tanh(x / cap)^2); dx may be dy itself"),
    row("relu", "y", "x", "", "max(x, 0)"),
    row("relu_bwd", "dx", "x dy", "", "dy where x > 0, else 0"),
    row("sigmoid", "y", "x", "", "1 / (1 + exp(-x))"),
    row("sigmoid_bwd", "dx", "x dy"),
    row("rsqrt", "y", "x", "eps", "1 / sqrt(x + eps)"),
    row("rsqrt_bwd", "dx", "x dy", "eps"),
    row("swiglu", "y", "a b", "", "a sigmoid(a) b"),
    row("swiglu_bwd", "da db", "a b dy"),
    row(
        "dropout",
        "y[b,*]",
        "x[b,*] key[b]",
        "rate salt start strides",
        "y = x / (1 - rate) where word p mod 4 of Philox4x32-10 of the counter p / 4 and the key (key, salt) is at "
        "least 2^32 rate, else 0; p = start + sum of index x `strides` (text, '64,1') over the other dimensions; "
        "y = x where key < 0",
        integers="key",
    ),
    # -- normalisation and positions
    row("layernorm", "y[*,d]", "x[*,d] g[d] b[d]", "eps", "biased variance"),
    row("layernorm_bwd", "dx[*,d] dg[d] db[d]", "x[*,d] g[d] dy[*,d]", "eps"),
    row("rmsnorm", "y[*,d]", "x[*,d] g[d]", "eps", "x / sqrt(mean(x^2) + eps) g"),
    row("rmsnorm_bwd", "dx[*,d] dg[d]", "x[*,d] g[d] dy[*,d]", "eps"),
    row(
        "rope",
        "y[b,s,*,e]",
        "x[b,s,*,e]",
        "theta sign start",
        "halves of e turned by sign (start + s) f, f = theta^(-2i/e), i < e/2 (the half-split form of Llama). With the "
        "options: of the first width elements alone, width for e, by f (t + (1 - t) / factor), t = (original f / 2 pi "
        "- low) / (high - low) within 0 and 1; interleaved=1 turns neighbours (2i, 2i + 1) instead",
        options="width factor low high original interleaved",
    ),
    # -- attention pieces; scores [*,q,k]
    row(
        "alibi",
        "y[b,h,*,q,k]",
        "x[b,h,*,q,k]",
        "heads group h_start g_start q_start k_start",
        "y = x + (k_start+k - q_start-q) slope of head n = (h_start+h) group + g_start+g, g the place in *; of the "
        "first 2^m heads, as many as `heads` has, 2^(-8(n+1)/2^m), of others 2^(-4(2(n-2^m)+1)/2^m); y may be x itself",
    ),
    row(
        "softmax",
        "p[*,q,k] m[*,q] z[*,q]",
        "s[*,q,k]",
        "causal q_start k_start",
        "rows of p = softmax(s), m their maximum, z their sum of exp(s - m); causal hides k_start+k > q_start+q, limit "
        "k_start+k >= limit, window k_start+k <= q_start+q - window (0: neither); an all-hidden row gives p = 0, m = "
        "-inf, z = 0; p may be s itself",
        options="limit window",
        sums="p m z s",
    ),
    row(
        "merge",
        "o[*,e] m[*] z[*]",
        "o[*,e] m[*] z[*] o2[*,e] m2[*] z2[*]",
        "",
        "online softmax: join two normalised chunks",
        sums="m z m2 z2",
    ),
    row(
        "probs",
        "p[*,q,k]",
        "s[*,q,k] m[*,q] z[*,q]",
        "causal q_start k_start",
        "p = exp(s - m) / z, as softmax gave it; hidden entries 0",
        options="limit window",
        sums="p s m z",
    ),
    row(
        "rowmean",
        "d[*]",
        "p[*,k] x[*,k] d[*]",
        "",
        "d = sum over k of p x in rows where p sums to one, but for 4 roundings; others stay",
        sums="d p x",
    ),
    row(
        "softmax_bwd",
        "ds[*,q,k]",
        "p[*,q,k] dp[*,q,k] delta[*,q]",
        "scale",
        "ds = p (dp - delta) scale",
        sums="ds p dp delta",
    ),
    # -- cross entropy pieces; columns from `limit` on (global, 0: none) are pads and never read
    row("rowmax", "m[*]", "x[*,v]", "limit start", sums="m"),
    row("sumexp", "z[*]", "x[*,v] m[*]", "limit start", "sum over v of exp(x - m)", sums="z m"),
    row(
        "sumexp_bwd", "dx[*,v]", "x[*,v] m[*] dz[*]", "limit start", "exp(x - m) dz; pads give 0", sums="m dz"
    ),
    row("rowsum", "s[*]", "x[*,v]", "limit start", "sum over v of x", sums="s"),
    row("rowsum_bwd", "dx[*,v]", "ds[*]", "limit start", "ds; pads give 0", sums="ds"),
    row(
        "pick",
        "p[*]",
        "x[*,v] y[*]",
        "start",
        "x[y - start], or 0 where y is elsewhere",
        integers="y",
        indexed="x",
        sums="p",
    ),
    row(
        "pick_bwd",
        "dx[*,v]",
        "y[*] dp[*]",
        "start",
        "dp at column y - start, 0 elsewhere",
        integers="y",
        sums="dp[*]",
    ),
    row(
        "nll",
        "l",
        "m z p y",
        "",
        "log z + (m - p); 0 where the label y is -100",
        integers="y",
        sums="l m z p",
    ),
    row(
        "nll_bwd",
        "dz dp",
        "z y dl",
        "",
        "dl / z and -dl; 0 where the label is -100",
        integers="y",
        sums="dz dp z dl",
    ),
    row(
        "zloss",
        "l",
        "m z y",
        "factor",
        "factor (log z + m)^2; 0 where the label y is -100",
        integers="y",
        sums="l m z",
    ),
    row(
        "zloss_bwd",
        "dz",
        "m z y dl",
        "factor",
        "2 factor (log z + m) dl / z; 0 where y is -100",
        integers="y",
        sums="dz m z dl",
    ),
    row("mean", "s[]", "x n[]", "", "sum of x / max(n, 1)", sums="s x n"),
    row("mean_bwd", "dx", "ds[] n[]", "", "ds / max(n, 1) everywhere", sums="dx ds n"),
    row("count", "n[]", "y", "", "labels that are not -100", integers="y", sums="n"),
    # -- mixture of experts: the slot of a token at expert e is e capacity + its place in the queue, or -1 - e if that
    # is full; `e_start` and `c_start` are the first expert and place of y
    row(
        "route",
        "gates[b,s,k] slots[b,s,k] chosen[e] dropped[e]",
        "x[b,s,e]",
        "capacity renormalise",
        "the k largest of softmax(x) (divided by their sum if renormalise), of equals the lower e; queues are filled "
        "in order of s, for each b anew",
        integers="slots",
        sums="gates chosen dropped x",
    ),
    row(
        "route_bwd",
        "dx[b,s,e]",
        "x[b,s,e] slots[b,s,k] dgates[b,s,k]",
        "capacity renormalise",
        integers="slots",
        sums="dx x dgates",
    ),
    row(
        "dispatch",
        "y[e,b,c,d]",
        "x[b,s,d] slots[b,s,k]",
        "capacity e_start c_start",
        "y = the row of x that has the slot, 0 in empty ones",
        integers="slots",
    ),
    row(
        "dispatch_bwd",
        "dx[b,s,d]",
        "dy[e,b,c,d] slots[b,s,k]",
        "capacity e_start c_start",
        "sum over k of dy in the slots; slots elsewhere give 0",
        integers="slots",
    ),
    row(
        "combine",
        "z[b,s,d]",
        "gates[b,s,k] slots[b,s,k] y[e,b,c,d]",
        "capacity e_start c_start",
        "sum over k of gates y in the slots; slots elsewhere give 0",
        integers="slots",
        sums="gates",
    ),
    row(
        "combine_bwd",
        "dgates[b,s,k] dy[e,b,c,d]",
        "gates[b,s,k] slots[b,s,k] y[e,b,c,d] dz[b,s,d]",
        "capacity e_start c_start",
        integers="slots",
        sums="dgates gates",
    ),
    row(
        "balance",
        "l[]",
        "x[b,s,e]",
        "k scale",
        "scale times the sum over b of e sum over e of f p: the share f of the k s choices that are of e, and the mean "
        "over s of softmax(x)",
        sums="l x",
    ),
    row("balance_bwd", "dx[b,s,e]", "x[b,s,e] dl[]", "k scale", sums="dx x dl"),
    row(
        "z_loss",
        "l[]",
        "x[b,s,e]",
        "scale",
        "scale times the sum of (log sum exp x)^2 over b and s",
        sums="l x",
    ),
    row("z_loss_bwd", "dx[b,s,e]", "x[b,s,e] dl[]", "scale", sums="dx x dl"),
    # -- the update; norm2 is the squared global gradient norm, t the step from 1
    row("sqsum", "s[]", "x", "", "sum of x^2, in f64", doubles="s", gradients=True),
    row("tick", "t[]", "t[]", "", "t + 1", integers="t"),
    row(
        "adamw",
        "w m v",
        "w m v g norm2[] t[]",
        "lr beta1 beta2 eps weight_decay clip warmup decay floor",
        "AdamW (Loshchilov and Hutter 2019) on g min(1, clip / (sqrt(norm2) + 1e-6)), clip 0: none; lr scaled by "
        "min(1, t / warmup), then a half cosine to `floor` at step `decay` (0: none)",
        integers="t",
        updates=True,
        doubles="norm2",
    ),
    row(
        "sgd",
        "w",
        "w g norm2[] t[]",
        "lr clip warmup decay floor",
        "w - lr g, scaled as adamw does",
        integers="t",
        updates=True,
        doubles="norm2",
    ),
    # -- messages
    row(
        "post",
        "slot",
        "",
        "channel peer",
        "grant the slot to the next message of `channel` from die `peer`",
        any_type=True,
    ),
    row(
        "send",
        "",
        "x",
        "channel peer route",
        "start the message to `peer`; x must stay until `wait sent`",
        any_type=True,
    ),
    row("wait", "", "", "channel side", "until the message has `received` or `sent`", any_type=True),
    row("delay", "", "", "time", "nothing; takes so many picoseconds, so that clusters of dies start apart"),
)

INSTRUCTIONS: Final[dict[str, InstructionDef]] = {d.opcode: d for d in _ALL}
