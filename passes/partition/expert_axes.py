"""Axes that split experts: which factors are experts, and the refusal of a degree that cannot split them."""

from __future__ import annotations

from wscc.diagnostics import Code, CompileError, Proposal, fail
from wscc.ir.module import Module
from wscc.passes.partition.chain import Chain, OpInstance, lower_degrees
from wscc.strategy import policy, with_degree


def expert_factors(instance: OpInstance, chain: Chain) -> list[str]:
    """Factors of a weight of a product that its activation and its result have too: each index of one has a matrix of
    its own, as experts have."""
    if not instance.op.definition.heavy:
        return []
    rule = instance.op.rule
    operands = list(zip(instance.operands, rule.ins, strict=False))
    weights = [term for name, term in operands if name in chain.weights]
    others = [term for name, term in operands if name not in chain.weights]
    if not weights or not others:
        return []
    return [f for f in weights[0] if all(f in term for term in (*others, *rule.outs))]


def check_experts(module: Module, chain: Chain) -> None:
    """Fail with W201 where a degree does not divide the experts of a product, or there are none."""
    products = [(i, factors[0]) for i in chain.instances if (factors := expert_factors(i, chain))]
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
