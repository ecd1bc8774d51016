"""The check of index rules of ops that take a value apart along one dimension, attribute `dim`, or join its parts.

`split` and `stack` have a part for each index, without the dimension; parts of `cut` and `concat` have some indices
each, in turn from the first on. What is left of the whole behind them is zeros where it is made, and no part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.ir.op import Op
from wscc.ir.rule import Rule

Term = tuple[str, ...]


def _split(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 1:
        return "it takes one operand"
    return _parts(op, rule, rule.ins[0], rule.outs, "result")


def _stack(op: Op, rule: Rule) -> str | None:
    if len(rule.outs) != 1:
        return "it gives one result"
    return _parts(op, rule, rule.outs[0], rule.ins, "operand")


def _parts(op: Op, rule: Rule, whole: Term, parts: tuple[Term, ...], word: str) -> str | None:
    """A split of `whole` into `parts` along `dim`, or a stack of them; `word` names a part."""
    dim = next((v for k, v in op.attrs if k == "dim"), None)
    if type(dim) is not int or not 0 <= dim < len(whole):
        return f"`dim` must be one of its {len(whole)} dimensions, from 0"
    if set(parts) != {whole[:dim] + whole[dim + 1 :]}:
        return f"each {word} has the factors of the whole but for dimension {dim}"
    if whole[dim] not in rule.whole:
        return f"factor `{whole[dim]}` must be whole (`{whole[dim]}!`)"
    value = op.operands[0] if word == "result" else op.results[0]
    if dim < len(value.type.shape) and value.type.shape[dim] != len(parts):
        return (
            f"dimension {dim} of `%{value.name}` is {value.type.shape[dim]}, and there are {len(parts)} parts"
        )
    return None


def _cut(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 1:
        return "it takes one operand"
    whole = rule.ins[0]
    lone = next((f for t in rule.outs for f in whole if f not in t and f != _at_dim(op, whole)), None)
    if lone:
        return f"a result lacks factor `{lone}`"
    return _pieces(op, rule, whole, rule.outs)


def _concat(op: Op, rule: Rule) -> str | None:
    if len(rule.outs) != 1:
        return "it gives one result"
    return _pieces(op, rule, rule.outs[0], rule.ins)


def _at_dim(op: Op, whole: Term) -> str | None:
    """The factor of the dimension `dim` of the whole; None if it has no such dimension."""
    dim = next((v for k, v in op.attrs if k == "dim"), None)
    return whole[dim] if type(dim) is int and 0 <= dim < len(whole) else None


def _pieces(op: Op, rule: Rule, whole: Term, parts: tuple[Term, ...]) -> str | None:
    """The mistake in parts that follow one another along the dimension `dim` of `whole`."""
    factor = _at_dim(op, whole)
    if factor is None:
        return f"`dim` must be one of its {len(whole)} dimensions, from 0"
    own: list[str] = []
    for term in parts:
        others = [f for f in term if f not in whole]
        if len(others) != 1 or [factor if f == others[0] else f for f in term] != [
            f for f in whole if f in term or f == factor
        ]:
            return f"each part has a factor of its own for `{factor}`, and other factors of the whole in their order"
        own.append(others[0])
    if split := [f for f in (factor, *own) if f not in rule.whole]:
        return f"factor `{split[0]}` must be whole (`{split[0]}!`)"
    # Ranks are not checked yet.
    sizes = {f: n for v, term in op.terms() for f, n in zip(term, v.type.shape, strict=False)}
    if not sizes.keys() >= {factor, *own}:
        return None
    if sum(sizes[f] for f in own) > sizes[factor]:
        return f"its parts have {sum(sizes[f] for f in own)} indices, and the whole {sizes[factor]}"
    return None


PART_FORMS: Final[dict[str, Callable[[Op, Rule], str | None]]] = {
    "split": _split,
    "stack": _stack,
    "cut": _cut,
    "concat": _concat,
}
