"""Axes that split experts: which factors are experts, and the refusal of a degree that cannot split them."""

from __future__ import annotations

from wscc.analysis.experts import expert_factors
from wscc.diagnostics import Code, CompileError, Proposal, fail
from wscc.ir.module import Module
from wscc.passes.partition.chain import Chain, OpInstance, lower_degrees
from wscc.strategy import policy, with_degree


def factors_of(instance: OpInstance, chain: Chain) -> list[str]:
    """The factors of an instance that are experts."""
    return expert_factors(instance.op, instance.operands, chain.weights)


def check_experts(module: Module, chain: Chain) -> None:
    """Fail with W201 where a degree does not divide the experts of a product, or there are none."""
    products = [(i, factors[0]) for i in chain.instances if (factors := factors_of(i, chain))]
    counts = {i.op.sizes[factor] for i, factor in products}
    for axis, degree in module.axes:
        if policy(axis).splits != "experts":
            continue
        if not products:
            raise _none(axis, degree, module)
        for instance, factor in products:
            if instance.op.sizes[factor] % degree:
                candidates = [
                    change
                    for change in lower_degrees(module.axes, axis, counts)
                    if all(n % dict(change.parallel or ()).get(axis, 1) == 0 for n in counts)
                ]
                words = f"`{axis} = {degree}` does not divide the {instance.op.sizes[factor]} experts"
                raise fail(Code.DEGREE, words, instance.op.span, candidates=candidates)


def _none(axis: str, degree: int, module: Module) -> CompileError:
    return fail(
        Code.DEGREE,
        f"`{axis} = {degree}` splits experts, and the model has none",
        module.spans.title,
        help="a weight of experts stands in `experts(x, weight)`",
        candidates=[Proposal(with_degree(module.axes, axis, 1))],
    )
