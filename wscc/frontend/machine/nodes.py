"""Nodes as one `machine.Wafer`: a row each, whose dies a network joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wscc.diagnostics import Code
from wscc.frontend import ast
from wscc.frontend.machine.wafers import NETWORK, TREE, add_damage, values_of
from wscc.frontend.report import Report, hint
from wscc.machine.wafer import Leaves, Network, Wafer

_WORDS: Final = ("switch", "rails", "leaves")
_HOW: Final = "write `through switch`, `through rails`, or `through leaves of 2`"


def join_nodes(system: ast.System, count: int, node: Wafer, report: Report) -> Wafer | None:
    """The machine of a system of several nodes; None with the mistakes noted."""
    mistakes, lines = len(report.diagnostics), system.body.lines
    wafers = next(e for e in lines if isinstance(e, ast.Wafers))
    joined = next((e for e in lines if isinstance(e, ast.Network)), None)
    others = [e for e in lines if isinstance(e, ast.Ports | ast.Fields)]
    if node.switch is None:
        message = (
            f"the dies of `{node.name}` have a link for each pair, and a network joins nodes with a switch"
        )
        help = (
            f"write `dies {node.dies} all to all through switch {{ capacity 4 TB/s, latency 300 ns }}` in it"
        )
        report.add(Code.CHOICE, message, wafers.wafer.span, "", help)
        return None
    if joined is None or others or wafers.torus:
        message = f"`{node.name}` is a node, and nodes are joined through switches"
        help = "write, for example, `joined through switch { bandwidth 50 GB/s, latency 5 us }`"
        report.add(Code.CHOICE, message, (others[0] if others else wafers.wafer).span, "", help)
        return None
    network = _network(joined, count, node, report)
    if network is None:
        return None
    dead = frozenset((r, c) for _, c in node.dead_dies for r in range(count))
    unlike = tuple(((r, c), die) for r in range(count) for (_, c), die in node.unlike)
    result = replace(node, name=system.name.id, rows=count, network=network, dead_dies=dead, unlike=unlike)
    damage = tuple(e for e in lines if isinstance(e, ast.DeadDie | ast.DeadLink))
    result = add_damage(result, damage, report)
    return result if len(report.diagnostics) == mistakes else None


def _network(joined: ast.Network, count: int, node: Wafer, report: Report) -> Network | None:
    mistakes = len(report.diagnostics)
    each = _nodes_of_a_leaf(joined, count, node, report)
    fields = {f.name.id: f for f in joined.fields.body.lines}
    is_tree = joined.word.id != "switch"
    if "uplink" in fields and not is_tree:
        message = "an `uplink` leads from a leaf to the spine, and `through switch` is one switch"
        help = "remove it, or write `through rails` or `through leaves of 2`"
        report.add(Code.UNKNOWN_KEY, message, fields["uplink"].name.span, "", help)
    else:
        values = values_of(joined.fields, TREE if is_tree else NETWORK, True, report)
    if len(report.diagnostics) > mistakes:
        return None
    dies = count if joined.word.id == "rails" else (each or count) * node.dies
    capacity = values.pop("capacity", values["bandwidth"] * dies)
    uplink = values.pop("uplink", capacity)
    if "capacity" in fields and uplink > capacity:
        message = "an `uplink` of more than the `capacity` of its leaf"
        help = "leave `uplink` out: it is then as wide as the leaf"
        report.add(Code.NUMBER, message, fields["uplink"].span, "", help)
    leaves = Leaves(each, uplink) if is_tree else None
    return Network(replace(node.link, **values), capacity, leaves=leaves)


def _nodes_of_a_leaf(joined: ast.Network, count: int, node: Wafer, report: Report) -> int:
    """How many nodes a leaf joins; 0 for rails and a single switch. Notes a word that is none, and fewer than two
    leaves."""
    word, of = joined.word, joined.of
    if word.id not in _WORDS:
        message = f"nodes are not joined through `{word.id}`"
        report.add(Code.CHOICE, message, word.span, "", hint(word.id, _WORDS, _HOW))
    elif word.id == "leaves" and of is None:
        help = "write, for example, `through leaves of 2 { ... }`"
        report.add(Code.MISSING, "`leaves` does not say of how many nodes each is", word.span, "", help)
    elif word.id != "leaves" and of is not None:
        report.add(Code.CHOICE, f"`{word.id}` has no `of`", of.span, "", _HOW)
    elif of is not None and (of.value < 1 or of.value.denominator != 1):
        message = f"a leaf joins a whole number of nodes, 1 at least, not {of.text}"
        report.add(Code.NUMBER, message, of.span, "", "write, for example, `through leaves of 2 { ... }`")
    elif of is not None and of.value >= count:
        message = f"a leaf of {of.text} nodes joins all {count}: one switch does it"
        report.add(Code.NUMBER, message, of.span, "", "write `joined through switch { ... }`")
    elif word.id == "rails" and node.dies == 1:
        message = f"nodes of one die have one rail, which joins all {count}: one switch does it"
        report.add(Code.NUMBER, message, word.span, "", "write `joined through switch { ... }`")
    else:
        return int(of.value) if of is not None else 0
    return 0
