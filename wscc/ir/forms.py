"""The check of an op's index rule against its `OpDef`: a template, or one of the forms below.

template         `* d!, d, d -> * d`: `*` is any factors, the same everywhere; any other name is one factor
contraction      `b s k, k n -> b s n`: factors that no result has are summed
reduction        `b s k -> s`: the same of one operand
contraction_add  `b s k!, k! n, n -> b s n`: a contraction, plus a term that repeats along what it lacks
broadcast        `b s d, d -> b s d`: operands repeat along what they lack
expansion        `b d -> b s d`: an operand that repeats along what it lacks
same             `b s, b s, b s -> b s`: any number of operands
split, stack     `b c! h -> b h, b h` and back: attribute `dim` is the place of `c`
cut, concat      `b u! d -> b t! d, b s! d` and back, where an operand may lack factors, along which it repeats
attention        `b q@ h g e!, b k~@ h e!, b k~@ h e! -> b q@ h g e!, b q@ h g, b q@ h g`; `g` may
                 be absent
attention_bwd    q, k, v, the three results, dO -> dq, dk, dv, in the factors of `attention`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from wscc.ir.op import Op
from wscc.ir.ops import OpDef
from wscc.ir.part_forms import PART_FORMS
from wscc.ir.rule import Rule
from wscc.ir.templates import bind

Term = tuple[str, ...]
_SLOT: Final = re.compile(r"(\*|[a-z][a-z0-9]*)([!~@]*)")


def check_form(op: Op) -> str | None:
    """The mistake in the rule of an op whose kind is a row of `OPS`, in words; None if the rule fits."""
    rule, definition = op.rule, op.definition
    # An empty term is an operand without dimensions, or none.
    terms = 0 if definition.nullary and rule.ins == ((),) else len(rule.ins)
    if len(op.operands) != terms:
        return f"its rule is for {terms} operands, not {len(op.operands)}"
    if len(op.results) != len(rule.outs):
        return f"its rule is for {len(rule.outs)} results, not {len(op.results)}"
    for term in (*rule.ins, *rule.outs):
        if len(set(term)) != len(term):
            return f"a factor occurs twice in `{' '.join(term)}`"
    if definition.form == "template":
        return _check_template(definition, rule)
    return _FORMS[definition.form](op, rule) or _check_marks(definition, rule)


# ------------------------------------------------------------------------------------------------- templates


@lru_cache(maxsize=256)
def _template(text: str) -> tuple[tuple[Term, ...], tuple[Term, ...], dict[str, str]]:
    """Slots of operands and results, and the marks of each slot."""
    left, _, right = text.partition("->")
    marks: dict[str, str] = {}
    for slot, suffix in _SLOT.findall(text):
        marks[slot] = "".join(sorted({*marks.get(slot, ""), *suffix}))

    def terms(side: str) -> tuple[Term, ...]:
        return tuple(tuple(slot for slot, _ in _SLOT.findall(term)) for term in side.split(","))

    return terms(left), terms(right), marks


def _check_template(definition: OpDef, rule: Rule) -> str | None:
    ins, outs, marks = _template(definition.rule)
    misfit = f"`{{{rule}}}` does not fit its rule `{definition.rule.strip()}`"
    if len(ins) != len(rule.ins) or len(outs) != len(rule.outs):
        return misfit
    bound: dict[str, Term] = {}
    for slots, term in zip((*ins, *outs), (*rule.ins, *rule.outs), strict=True):
        if not bind(slots, term, bound):
            return misfit
    all_factors = [f for factors in bound.values() for f in factors]
    if len(set(all_factors)) != len(all_factors):
        return misfit
    for slot, factors in bound.items():
        for f in factors:
            if wrong := _wrong_marks(rule, f, marks.get(slot, "")):
                return wrong
    return None


def _wrong_marks(rule: Rule, factor: str, due: str) -> str | None:
    """A factor that lacks one of the marks `due`, or is streamable or indexed without being so marked there. It may be
    whole without: a pass may make it so."""
    if "!" in due and factor not in rule.whole:
        return f"factor `{factor}` must be whole (`{factor}!`)"
    for mark, marked, word in (("~", rule.streamed, "streamable"), ("@", rule.indexed, "indexed")):
        if (mark in due) != (factor in marked):
            return f"factor `{factor}` {'must' if mark in due else 'cannot'} be {word} (`{factor}{mark}`)"
    return None


# ----------------------------------------------------------------------------------------------------- forms


def _check_marks(definition: OpDef, rule: Rule) -> str | None:
    """The marks of a form that is not attention, which checks its own: no factor is streamable or indexed."""
    if definition.form.startswith("attention"):
        return None
    return next((w for f in rule.factors if (w := _wrong_marks(rule, f, ""))), None)


def _contraction(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 2 or len(rule.outs) != 1:
        return "it takes 2 operands and gives one result"
    return _missing_factor(rule) or _one_sided(rule.ins, rule)


def _reduction(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 1 or len(rule.outs) != 1:
        return "it takes 1 operand and gives one result"
    return _missing_factor(rule)


def _contraction_add(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 3 or len(rule.outs) != 1:
        return "it takes three operands and gives one result"
    product = Rule(rule.ins[:2], rule.outs, rule.whole, rule.streamed, rule.indexed)
    if wrong := _missing_factor(product) or _one_sided(product.ins, product):
        return wrong
    if extra := [f for f in rule.ins[2] if f not in rule.outs[0]]:
        return f"what is added has factor `{extra[0]}`, which the result lacks"
    # A partial product plus the whole of what is added is not part of any sum.
    if split := [f for f in product.contracted if f not in rule.whole]:
        return f"factor `{split[0]}` must be whole (`{split[0]}!`)"
    return None


def _missing_factor(rule: Rule) -> str | None:
    """A factor of the result that no operand has."""
    operand_factors = {f for term in rule.ins for f in term}
    missing = [f for term in rule.outs for f in term if f not in operand_factors]
    return f"factor `{missing[0]}` of the result is in no operand" if missing else None


def _one_sided(ins: tuple[Term, ...], rule: Rule) -> str | None:
    """A contracted factor that not every operand has."""
    lone = [f for f in rule.contracted if not all(f in term for term in ins)]
    return f"factor `{lone[0]}` is summed, but only one operand has it" if lone else None


def _broadcast(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 2 or len(rule.outs) != 1:
        return "it takes two operands and gives one result"
    if extra := rule.contracted:
        return f"factor `{extra[0]}` is in an operand but not in the result"
    return _missing_factor(rule)


def _expansion(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 1 or len(rule.outs) != 1:
        return "it takes 1 operand and gives one result"
    if extra := rule.contracted:
        return f"factor `{extra[0]}` is in the operand but not in the result"
    return None


def _same(op: Op, rule: Rule) -> str | None:
    if len(rule.outs) != 1:
        return "it gives one result"
    return None if set(rule.ins) == {rule.outs[0]} else "all operands and the result have the same factors"


_ATTENTION_RULE: Final = "b q@ h g e!, b k~@ h e!, b k~@ h e! -> b q@ h g e!, b q@ h g, b q@ h g"


def _attention(op: Op, rule: Rule) -> str | None:
    ins, outs = rule.ins, rule.outs
    if (
        len(ins) != 3
        or len(outs) != 3
        or not _are_heads(ins[0], ins[1], ins[2])
        or outs != (ins[0], ins[0][:-1], ins[0][:-1])
    ):
        return f"`{{{rule}}}` does not fit its rule `{_ATTENTION_RULE}` (`g` may be absent)"
    return _attention_marks(op, rule)


def _attention_bwd(op: Op, rule: Rule) -> str | None:
    if len(rule.ins) != 7 or len(rule.outs) != 3:
        return "it takes q, k, v, the three results of `attention` and a gradient, and gives dq, dk and dv"
    q, k, v, *saved, grad = rule.ins
    if not _are_heads(q, k, v) or rule.outs != (q, k, v) or [*saved, grad] != [q, q[:-1], q[:-1], q]:
        return f"`{{{rule}}}` does not follow `{_ATTENTION_RULE}` (`g` may be absent)"
    return _attention_marks(op, rule)


def _are_heads(q: Term, k: Term, v: Term) -> bool:
    """Whether the terms are those of queries, keys and values, with or without groups of query heads."""
    grouped = len(q) in (4, 5) and len(k) == 4 and k == v
    return grouped and (q[0], q[2], q[-1]) == (k[0], k[2], k[3]) and k[1] not in q and q[1] not in k


def _attention_marks(op: Op, rule: Rule) -> str | None:
    q, k = rule.ins[0], rule.ins[1]
    due = {q[1]: "@", k[1]: "~@", q[-1]: "!"}
    if dict(op.attrs).get("alibi"):  # each head has a slope of its own
        due |= dict.fromkeys(q[2:-1], "@")
    return next((w for f in rule.factors if (w := _wrong_marks(rule, f, due.get(f, "")))), None)


_FORMS: Final[dict[str, Callable[[Op, Rule], str | None]]] = {
    "contraction": _contraction,
    "reduction": _reduction,
    "contraction_add": _contraction_add,
    "broadcast": _broadcast,
    "same": _same,
    "expansion": _expansion,
    **PART_FORMS,
    "attention": _attention,
    "attention_bwd": _attention_bwd,
}
