"""Mistakes in the graph and in the training step: what is called, how often, on which element."""

from __future__ import annotations

from tests.models import gpt, llama
from tests.mutations.edits import Edit
from tests.mutations.harness import Setting

GPT, LLAMA = Setting(family=gpt), Setting(family=llama)
# On three steps the third layer of moments has a past.
FULL = Setting(family=gpt, recompute="full")


def graph(mistake: str, part: str, find: str, put: str, setting: Setting = GPT, **more: str) -> Edit:
    """Before the training step is made: the compiler is right, but about another model."""
    return Edit(mistake, setting, "elaborate", part, find, put, **more)


def step(
    mistake: str, part: str, find: str, put: str, caught: str = "equality", words: str = "", *,
    setting: Setting = GPT, every: bool = False,
) -> Edit:  # fmt: skip
    return Edit(mistake, setting, "differentiate", part, find, put, caught, words, every)


FIRST_OUTPUT = r"(-> \(%\S+) add"
CALL = r"((?:.*\n)*?)"

GRAPH = (
    graph("attention sees the future", "proc @block", "causal=true", "causal=false"),
    graph("scores scaled by 1/e", "proc @block", "scale=0.5", "scale=0.25"),
    graph("queries and keys exchanged", "proc @block", r"attention\(%q, %k", "attention(%k, %q"),
    graph("keys and values exchanged", "proc @block", r"attention\(%q, %k, %v", "attention(%q, %v, %k"),
    graph("residual lost", "proc @block", r"add\(%x, %add\.1\)", "add(%add.1, %add.1)"),
    graph("normed twice", "proc @block", r"layernorm\(%add\.2", "layernorm(%layernorm"),
    graph("another eps", "proc @block", "eps=1e-05", "eps=1e-06"),
    graph(
        "gains exchanged", "proc @block",
        rf"layernorm\(%x, %g1(.*\n){CALL}(.*)layernorm\(%add\.2, %g2", r"layernorm(%x, %g2\1\2\3layernorm(%add.2, %g1",
    ),
    graph("labels are not shifted", "step", r"%labels\[mb\], %count, %gf", "%tokens[mb], %count, %gf"),
    graph("layers in reverse", "step", r"%block\.wqkv\[l\]", "%block.wqkv[-1*l + 1]"),
    graph("one layer only", "step", r"@head\(%x\[2\]", "@head(%x[1]"),
    graph("positions of the half-split form with another base", "proc @block", "theta=10000.0", "theta=1000.0", LLAMA),
)

STEP = (
    step("gradients are not zeroed", "step", r"  call @zero\(.*\n", "", "checked", "that nothing has written"),
    step(
        "gradients zeroed for each micro-batch", "step",
        rf"(  call @zero\(.*\n){CALL}(  loop mb < 2 \{{\n)(    call @embed)", r"\2\3  \1\4",
    ),
    step("gradients of one micro-batch overwrite", "proc @head.bwd", r"(%\S+) add", r"\1 write"),
    step("a tied use overwrites the other", "proc @embed.bwd", FIRST_OUTPUT, r"\1 write"),
    step("loss of the last micro-batch", "proc @head.fwd", FIRST_OUTPUT, r"\1 write"),
    step("labels of the last micro-batch counted", "proc @prepare", FIRST_OUTPUT, r"\1 write"),
    step("loss is not reset", "proc @start", "value=0.0", "value=1.0"),
    step("labels counted twice", "step", r"(    call @prepare.*\n)", r"\1\1"),
    step("steps are not counted", "step", r"  call @begin\(.*\n", "", "run", "`embed.update`"),
    step("the norm begins at 1", "proc @begin", "value=0.0", "value=1.0"),
    step("backward through layers in forward order", "step", r"\[-1\*l \+ 1\]", "[l]", every=True),
    step("saved value of another layer", "step", r"%block\.gelu\[-1\*l \+ 1\]", "%block.gelu[l]"),
    step("saved log-sum-exp of another layer", "step", r"%block\.lse\[-1\*l \+ 1\]", "%block.lse[l]"),
    step("output of the layer for its input", "step", r"@block\.bwd\(%x\[-1\*l \+ 1\]", "@block.bwd(%x[-1*l + 2]"),
    step("weights of another layer", "step", r"(@block\.bwd.*?)%block\.w1\[-1\*l \+ 1\]", r"\1%block.w1[l]"),
    step(
        "gradient slots do not take turns", "step", r"%x\.grad\[\(-1\*l \+ 2\) mod 2\]", "%x.grad[(-1*l + 1) mod 2]",
        "checked", "`block.bwd` instruction 0: `x` reads bytes that nothing has written",
    ),
    step(
        "gradient slots do not wrap", "step", r"%x\.grad\[\(-1\*l \+ 2\) mod 2\]", "%x.grad[-1*l + 2]",
        "verifier", "`differentiate` produced invalid IR: call of `@block.bwd`: an index of `%x.grad` runs from 1 to 2",
    ),
    step("gradient of another layer updates", "step", r"(@block\.update.*?)%block\.bo\.grad\[l\]", r"\1%block.bo.grad[-1*l + 1]"),
    step("gradient of another weight updates", "step", r"%gf\.grad, %bf\.grad, %norm2, %t", "%bf.grad, %gf.grad, %norm2, %t"),
    step("update before the norm", "step", rf"(  call @embed\.norm.*\n){CALL}(  call @embed\.update.*\n)", r"\3\1\2"),
    step("norm counts a tied weight twice", "step", r"(  call @embed\.norm.*\n)", r"\1\1"),
    step("norm of some weights forgotten", "step", r"  call @head\.norm.*\n", ""),
    step("update forgotten", "step", r"  call @head\.update.*", ""),
    step("moments exchanged", "step", r"@embed\.update\(%wte, %wte\.m, %wte\.v", "@embed.update(%wte, %wte.v, %wte.m"),
    step("moments not kept", "step", r"(@head\.update.*, %gf), %gf\.m, %gf\.v", r"\1, %gf.v, %gf.m"),
    step(
        "two results in one place", "step", r"(@head\.update.*, %gf), %gf\.m, %gf\.v", r"\1, %gf.m, %gf.m",
        "verifier", "two results go to the same element",
    ),
    step(
        "weights of another shape", "step", r"@embed\.fwd\(%tokens\[mb\], %wte, %wpe", "@embed.fwd(%tokens[mb], %wpe, %wte",
        "verifier", "`%wpe` is f64[8,16], and formal `%wte` is f64[32,16]",
    ),
    step("another learning rate", "proc @head.update", "lr=0.01", "lr=0.0101"),
    step("loss seeded with 2", "proc @head.bwd", "value=1.0", "value=2.0"),
    step("one micro-batch", "step", r"loop mb < 2 \{(\n    call @embed)", r"loop mb < 1 {\1"),
    step("three micro-batches", "step", r"loop mb < 2 \{(\n    call @embed)", r"loop mb < 3 {\1", "verifier", "runs from 0 to 2"),
    step("labels of the first micro-batch", "step", r"(@head\.bwd\(%x\[2\], )%labels\[mb\]", r"\1%labels[0]"),
    step("tokens of the first micro-batch", "step", r"@embed\.bwd\(%tokens\[mb\]", "@embed.bwd(%tokens[0]"),
    step("head reads what goes into the last layer", "step", r"@head\.fwd\(%x\[2\]", "@head.fwd(%x[1]"),
    step("backward without mask", "proc @block.bwd", "causal=true", "causal=false"),
    step("slope at another value", "proc @block.bwd", r"gelu_bwd\(%add\.3", "gelu_bwd(%gelu"),
    step("gradient of one branch of a residual", "proc @block.bwd", r"gsum\(%d\.add\.5, %d\.add\.2\)", "gsum(%d.add.5, %d.add.5)"),
    step("recomputed with another eps", "proc @block.bwd", "eps=1e-05", "eps=1e-06", setting=FULL),
    step("recomputed without mask", "proc @block.bwd", "causal=true", "causal=false", setting=FULL),
    step(
        "read before it is made", "proc @block.bwd", r"(  %d\.gelu = .*\n)(  %d\.gelu\.1 = .*\n)(  %d\.add\.3 = .*\n)", r"\3\1\2",
        "parser", "`%d.gelu` is not defined before this",
    ),
)  # fmt: skip
