"""The step of a stage as a tree of calls and loops, with the memories of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wscc.ir.streams.program import Address, ProgramCall, ProgramLoop, ProgramStep


@dataclass(frozen=True, slots=True, eq=False)
class CallNode:
    """A call of the step; `places` are the memories of its arguments if they are the same in every turn, else None."""

    procedure: str
    args: tuple[Address, ...]
    places: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class LoopNode:
    """A loop; `uniform`: every turn does the same; `steady`: and has no messages to or from other stages."""

    variable: str
    count: int
    body: tuple[CallNode | LoopNode, ...]
    uniform: bool
    steady: bool

    def calls(self) -> Iterable[CallNode]:
        for node in self.body:
            if isinstance(node, CallNode):
                yield node
            else:
                yield from node.calls()


Node = CallNode | LoopNode
Locate = Callable[[str, Sequence[int]], tuple[int, ...]]


def nodes(
    step: ProgramStep,
    locate: Locate,
    is_joint: Callable[[str], bool],
    counts: Mapping[str, int] | None = None,
) -> tuple[Node, ...]:
    """The step of a stage as a tree of calls and loops. `locate` gives the memories of arguments at addresses,
    `is_joint` is true of a procedure that has messages between stages."""
    counts = counts or {}
    tree: list[Node] = []
    for stmt in step:
        if isinstance(stmt, ProgramLoop):
            body = nodes(stmt.body, locate, is_joint, {**counts, stmt.variable: stmt.count})
            steady = all(_is_steady(n, is_joint) for n in body)
            uniform = all(n.uniform if isinstance(n, LoopNode) else n.places is not None for n in body)
            tree.append(LoopNode(stmt.variable, stmt.count, body, uniform, steady))
        else:
            tree.append(_call(stmt, locate, counts))
    return tuple(tree)


def _is_steady(node: Node, is_joint: Callable[[str], bool]) -> bool:
    if isinstance(node, LoopNode):
        return node.steady
    return node.places is not None and not is_joint(node.procedure)


def _call(call: ProgramCall, locate: Locate, counts: Mapping[str, int]) -> CallNode:
    """The node of a call. Its arguments stay in one memory if that of their lowest and highest address is the same:
    the memories follow one another in the address space."""
    if any(count < 1 for count in counts.values()):
        return CallNode(call.procedure, call.args, None)
    spans = [a.span(counts) for a in call.args]
    low = locate(call.procedure, [a for a, _ in spans])
    high = locate(call.procedure, [b for _, b in spans])
    return CallNode(call.procedure, call.args, low if low == high else None)
