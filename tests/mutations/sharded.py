"""Mistakes in layouts: parts of a sum taken for the whole, sums never completed, reshards of the wrong kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest import MonkeyPatch

from tests.models import gpt, llama
from tests.mutations.edits import Edit
from tests.mutations.harness import Setting
from wscc.ir.fabric import View
from wscc.ir.module import Op
from wscc.ir.ops import OPS
from wscc.ir.types import DType, Layout, Reduction
from wscc.passes import fuse, lower_reshards, partition_body, partition_streams
from wscc.passes.lower_reshards import Along
from wscc.passes.partition_layouts import result_layouts

DP = Setting(family=gpt, degrees=(("dp", 2),))
TP = Setting(family=gpt, degrees=(("tp", 2),))
TATP = Setting(family=gpt, degrees=(("tatp", 2),))
# One sequence in a call: the axis splits the sequence.
STREAMED = Setting(family=gpt, degrees=(("tatp", 2),), batch=2)
LLAMA_TP = Setting(family=llama, degrees=(("tp", 2),))
TP_4 = Setting(family=gpt, degrees=(("tp", 4),))
HOT_TP = Setting(family=llama, degrees=(("tp", 2),), optimizer="sgd", dtype=DType.F32, heat=200.0)


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake in a pass. `caught` is the check that notices; `silenced` the one that does when the verifier
    says nothing."""

    mistake: str
    setting: Setting
    plant: Callable[[MonkeyPatch], None]
    caught: str = "equality"
    words: str = ""
    silenced: str = ""

    def __str__(self) -> str:
        return self.mistake


def complete(mistake: str, setting: Setting, chosen: Callable[[Op, int], bool], words: str, silenced: str = "equality") -> Planted:
    """Results (op, number) that partition takes for complete, though they are parts."""

    def layouts(op: Op, assignment: dict[str, tuple[str, ...]]) -> list[Layout]:
        made = result_layouts(op, assignment)
        return [lay.completed() if chosen(op, j) else lay for j, lay in enumerate(made)]

    def plant(patch: MonkeyPatch) -> None:
        patch.setattr(partition_body, "result_layouts", layouts)

    return Planted(f"{mistake} taken as complete", setting, plant, "verifier", words, silenced)


def kind(name: str, *results: int) -> Callable[[Op, int], bool]:
    return lambda op, j: op.kind == name and (not results or j in results)


def of_matmul(*, backward: bool) -> Callable[[Op, int], bool]:
    return lambda op, j: op.kind == "matmul" and bool(op.origin) == backward


COMPLETE = (
    complete("gain of a norm", DP, kind("layernorm_bwd", 1), "`%d.gf` is partial over `dp` (it lacks factor `b`"),
    complete("bias of a norm", DP, kind("layernorm_bwd", 2), "`%d.bf` is partial over `dp`"),
    complete("gradient of a bias", DP, kind("sum"), "is partial over `dp` (it lacks factor `b`"),
    complete("gradient of a matrix", DP, of_matmul(backward=True), "is partial over `dp` (it lacks factor `b`"),
    complete("gradient of a table", DP, kind("embedding_bwd"), "is partial over `dp` (it lacks factor `b`"),
    complete("loss", DP, kind("mean"), "`%loss` is partial over `dp`"),
    complete("count of labels", DP, kind("count"), "`%count` is partial over `dp`"),
    complete("row-parallel product", TP, of_matmul(backward=False), "is partial over `tp`"),
    complete("gradient through a column-parallel product", TP, of_matmul(backward=True), "is partial over `tp`"),
    complete("lookup in a split table", TP, kind("embedding"), "`%embedding` is partial over `tp` (it lacks factor `v`"),
    complete("maximum of split logits", TP, kind("rowmax"), "`%rowmax` is partial over `tp`"),
    complete("sum of split exponentials", TP, kind("sumexp"), "`%sumexp` is partial over `tp`"),
    complete("logit of the label", TP, kind("pick"), "`%pick` is partial over `tp`"),
    complete("squared norm of split gradients", TP, kind("sqsum"), "is partial over `tp`"),
    complete("gradients of keys and values", STREAMED, kind("attention_bwd", 1, 2), ""),
)


# ------------------------------------------------------------------------------------- reshards gone wrong


def gathered_in_reverse(patch: MonkeyPatch) -> None:
    right = lower_reshards.all_gather

    def all_gather(a: Along, x: View, out: View, dim: int, group: str) -> None:
        whole = a.build.buffer("reversed", out.shape, out.dtype)
        right(a, x, whole, dim, group)
        for p in range(a.size):
            a.build.kernel("copy", [a.at(out, dim, p)], [a.at(whole, dim, a.size - 1 - p)])

    patch.setattr(lower_reshards, "all_gather", all_gather)


def scattered_to_the_neighbour(patch: MonkeyPatch) -> None:
    right = lower_reshards.reduce_scatter

    def reduce_scatter(a: Along, x: View, out: View, dim: int, group: str, combine: str = "add") -> None:
        turned = a.build.buffer("turned", x.shape, x.dtype)
        for p in range(a.size):
            a.build.kernel("copy", [a.at(turned, dim, p)], [a.at(x, dim, (p + 1) % a.size)])
        right(a, turned, out, dim, group, combine)

    patch.setattr(lower_reshards, "reduce_scatter", reduce_scatter)


def averaged(axis: str) -> Callable[[MonkeyPatch], None]:
    def plant(patch: MonkeyPatch) -> None:
        right = lower_reshards.all_reduce

        def all_reduce(a: Along, x: View, out: View, group: str, combine: str = "add") -> None:
            right(a, x, out, group, combine)
            if a.axis == axis:
                a.build.kernel("scale", [out], [out], {"factor": 1 / a.size})

        patch.setattr(lower_reshards, "all_reduce", all_reduce)

    return plant


def own_part_added_twice(patch: MonkeyPatch) -> None:
    right = lower_reshards.all_reduce

    def all_reduce(a: Along, x: View, out: View, group: str, combine: str = "add") -> None:
        right(a, x, out, group, combine)
        a.build.kernel(combine, [out], [out, x])

    patch.setattr(lower_reshards, "all_reduce", all_reduce)


def exchanged_in_place(patch: MonkeyPatch) -> None:
    """Blocks land where they came from."""

    def all_to_all(a: Along, x: View, out: View, dim: int, to: int, group: str) -> None:
        for p in range(a.size):
            a.build.kernel("copy", [a.at(out, dim, p)], [a.at(x, to, p)])

    patch.setattr(lower_reshards, "all_to_all", all_to_all)


def masked_nowhere(patch: MonkeyPatch) -> None:
    patch.setattr(lower_reshards, "mask", lambda mesh, axis, positions: 1)
    patch.setattr(lower_reshards, "flipped", lambda where: 0)


def sliced_alike(patch: MonkeyPatch) -> None:
    """Every die takes the first block."""
    patch.setattr(Along, "own", 0)


def rowmax_declared_a_sum(patch: MonkeyPatch) -> None:
    patch.setitem(OPS, "rowmax", replace(OPS["rowmax"], combine=Reduction.SUM))


def rowmax_laid_out_as_a_sum(patch: MonkeyPatch) -> None:
    def layouts(op: Op, assignment: dict[str, tuple[str, ...]]) -> list[Layout]:
        made = result_layouts(op, assignment)
        return [lay.with_partial({a: Reduction.SUM for a, _ in lay.partial}) for lay in made]

    patch.setattr(partition_body, "result_layouts", layouts)


def declared_linear(*kinds: str) -> Callable[[MonkeyPatch], None]:
    """Parts of a sum pass through."""

    def plant(patch: MonkeyPatch) -> None:
        for name in kinds:
            patch.setitem(OPS, name, replace(OPS[name], linear=True))

    return plant


def bias_folded_into_a_part(patch: MonkeyPatch) -> None:
    patch.setattr(fuse, "_is_foldable", lambda op: op.kind == "matmul")


def replicas_summed_in_any_order(patch: MonkeyPatch) -> None:
    patch.setattr(partition_streams, "_keeps_replicas_equal", lambda op, candidate: True)


RESHARDS = (
    Planted("all_gather in reverse order", TP, gathered_in_reverse),
    Planted("reduce_scatter to the neighbour", TP, scattered_to_the_neighbour),
    Planted("gradients averaged over dp", DP, averaged("dp")),
    Planted("all_reduce adds its own part twice", DP, own_part_added_twice, "checked", "another replica"),
    Planted("all_to_all keeps its blocks", LLAMA_TP, exchanged_in_place),
    Planted("mask keeps every replica", TATP, masked_nowhere),
    Planted("slice takes the first block", TP, sliced_alike),
    Planted("rowmax declared a sum, hot logits", HOT_TP, rowmax_declared_a_sum),
    Planted("rowmax laid out as a sum", TP, rowmax_laid_out_as_a_sum, "verifier", "`%rowmax` is partial (max) over `tp`, not (sum)"),
    Planted("gelu declared linear", TP_4, declared_linear("gelu", "gelu_bwd", "layernorm")),
    Planted(
        "bias added by every die to its part", TP, bias_folded_into_a_part, "verifier", "`fuse` produced invalid IR", "equality",
    ),
    Planted("replicas summed in their own orders", STREAMED, replicas_summed_in_any_order),
)  # fmt: skip

# ----------------------------------------------------------------------------------------- in the text


def text(mistake: str, setting: Setting, part: str, find: str, put: str, caught: str = "equality", words: str = "") -> Edit:
    return Edit(mistake, setting, "partition", part, find, put, caught, words)


EDITS = (
    text("gradients are never completed", DP, "step", r"  call @complete\.\d+\(%loss.*\n", "", "checked", "another replica"),
    text("labels are counted by each replica", DP, "step", r"  call @complete\.\d+\(%count.*\n", ""),
    text("squared norm is never completed", TATP, "step", r"  call @complete\.\d+\(%norm2.*\n", "", "checked", "another replica"),
    text("gradients completed twice", DP, "step", r"(  call @complete\.\d+\(%loss.*\n)", r"\1\1"),
    text(
        "gradients completed after each micro-batch", DP, "step",
        r"(    call @embed\.bwd.*\n)(  \}\n)(  call @complete\.\d+\(%loss.*\n)", r"\1  \3\2",
    ),
    text("a completed gradient is added to", DP, "step", r"%wte\.grad\.partial, %wpe\.grad\.partial\)\n  \}", "%wte.grad, %wpe.grad)\n  }", "verifier", "`%wte.grad` is f64[32,16], and formal"),
    text("an update reads what is not completed", DP, "step", r"(@embed\.update.*)%wte\.grad, ", r"\1%wte.grad.partial, ", "verifier", "sum(dp), and formal `%wte.grad` is"),
    text("an update is given a part", DP, "proc @embed.update", r"%wte\.grad : f64\[32,16\]", "%wte.grad : f64[32,16] sum(dp)", "verifier", "an update reads `%wte.grad`, which is partial over `dp`"),
    text("a part is sliced", TP, "proc @embed.fwd", "reduce_scatter", "slice", "verifier", "is not the same on all dies along `tp`"),
    text("a sum is reduced by its maximum", DP, "", "reduction=sum", "reduction=max", "verifier", "is no partial max over `dp`"),
    text("scattered along another dimension", TP, "proc @embed.fwd", "axis=tp dim=1", "axis=tp dim=2", "verifier", "it makes f64[2,8,16/tp] of `%embedding`"),
    text("gathered along another dimension", TP, "proc @embed.bwd", "axis=tp dim=1", "axis=tp dim=2", "verifier", "is not the minor axis of dimension 2"),
    text("a gather is forgotten", TP, "proc @embed.bwd", r"embedding_bwd\(%tokens, %d\.add\.tp\)", "embedding_bwd(%tokens, %d.add)", "verifier", "`tp` splits factors"),
    text("a reduction is forgotten", TP, "proc @head.fwd", r"sumexp\(%matmul, %rowmax\.tp\)", "sumexp(%matmul, %rowmax)", "verifier", "`%rowmax` is partial (max) over `tp`, and is read as complete"),
    text("a whole factor is split", TP, "proc @embed.fwd", "s t, s t -> b s t", "s! t, s! t -> b s! t", "verifier", "must be whole"),
    text("the weight rests otherwise than it is used", TP, "", r"array %wte : f64\[32/tp,16\]", "array %wte : f64[32,16/tp]", "verifier", "`%wte` is f64[32,16/tp], and formal"),
    text("another operand moves", STREAMED, "proc @block.fwd", r"over tatp, in 1\)", "over tatp, in 0)", "verifier", "moves and does not have the streamed factor"),
    text("a stream over another factor", STREAMED, "proc @block.fwd", r"stream\(n1 over", "stream(n2 over", "verifier", "moves, and the minor axis of its `n2` is not `tatp`"),
    text("a result that stays is streamed away", STREAMED, "proc @block.bwd", r"in 1 2, out 1 2\)", "in 1 2, out 1)", "verifier", "`%d.v.tatp`"),
    text("keys move and values stay", STREAMED, "proc @block.fwd", r"over tatp, in 1 2\)", "over tatp, in 1)", "verifier", "factor `k` is split by"),
    text("the shard of another dimension", STREAMED, "", r"array %tokens : i32\[1,8/tatp\]", "array %tokens : i32[1,8]", "verifier", "and formal `%tokens`"),
)  # fmt: skip
