"""The profile of a compiled program: the op and the line of the model that every instruction comes from."""

from __future__ import annotations

from wscc.backends.emit.statements import participants
from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import Kernel, Send
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.per_die import Ints
from wscc.ir.streams.profile import Origin, ProcedureOrigins, Profile
from wscc.ir.streams.program import Streams

STREAM = "stream"
LOCAL = "copies from and to HBM"


def profile_of(
    model: Module, sharded: Module, planned: Module, streams: Streams, model_flops: int, file: str
) -> Profile:
    """The profile of `streams`. `model` is the forward module, `sharded` the one that was lowered, `planned` the one
    that was emitted."""
    builder = _ProfileBuilder(model, sharded, planned, streams)
    procedures = tuple(map(builder.procedure, planned.procedures))
    return Profile(model_flops, file, tuple(builder.origins), tuple(builder.roles), procedures)


class _ProfileBuilder:
    """Numbers origins and sets of roles in the order of their first use."""

    def __init__(self, model: Module, sharded: Module, planned: Module, streams: Streams) -> None:
        self.ops = {p.name: {op.results[0].name: op for op in p.statements} for p in sharded.procedures}
        self.lines = {p.name: _lines(p) for p in sharded.procedures}
        self.dies = planned.dies_used
        firsts: dict[int, int] = {}
        for die, role in enumerate(streams.roles):
            firsts.setdefault(role, die)
        self.firsts = firsts
        self.origins: dict[Origin, int] = {}
        self.roles: dict[tuple[int, ...], int] = {}
        self.masks: dict[Ints, int] = {}  # numbers of sets of roles by mask of dies
        self.arrays = {a.name: a.span.line for a in model.arrays if a.span.line}

    def procedure(self, planned: Procedure) -> ProcedureOrigins:
        kernels = [s for s in planned.body if isinstance(s, Kernel) and participants(s, self.dies) != 0]
        channels: dict[int, int] = {}
        for stmt in planned.body:
            if isinstance(stmt, Send):
                kind = LOCAL if stmt.is_local else ""
                channels[stmt.channel] = self._origin(planned.name, stmt.source, kind=kind)
        return ProcedureOrigins(
            planned.name,
            tuple(channels.get(c, -1) for c in range(1 + max(channels, default=-1))),
            tuple(self._origin(planned.name, k.source, k) for k in kernels),
            tuple(self._mask(k) for k in kernels),
        )

    def _origin(self, procedure: str, source: str, kernel: Kernel | None = None, *, kind: str = "") -> int:
        """The number of a statement's origin. In a merged procedure, `source` is `procedure/op`."""
        merged, _, name = source.rpartition("/")
        home = merged or procedure
        op = self.ops.get(home, {}).get(name)
        line = kernel.span.line if kernel is not None else 0
        line = line or self.lines.get(home, {}).get(name, 0) or self._array_line(name)
        if kind:
            pass
        elif kernel is not None:
            kind = kernel.opcode
        elif op is None:
            kind = "message"
        else:
            kind = STREAM if isinstance(op, Op) and op.stream is not None else op.kind
        return self.origins.setdefault(Origin(name, kind, line), len(self.origins))

    def _array_line(self, name: str) -> int:
        """The line of the array that a derived name belongs to: `block.wo.grad.dp` to `block.wo`."""
        while name and name not in self.arrays:
            name = name.rpartition(".")[0]
        return self.arrays.get(name, 0)

    def _mask(self, kernel: Kernel) -> int:
        """The number of the set of roles that execute a kernel."""
        if kernel.where not in self.masks:
            where = as_array(kernel.where, self.dies)
            roles = tuple(sorted(r for r, die in self.firsts.items() if where[die]))
            self.masks[kernel.where] = self.roles.setdefault(roles, len(self.roles))
        return self.masks[kernel.where]


def _lines(procedure: Procedure) -> dict[str, int]:
    """The line of the op of each result. An op without a line, such as a reshard, gets that of its operands, or else
    that of the ops that read its results."""
    lines: dict[str, int] = {}
    for op in procedure.statements:
        line = op.span.line or max((lines.get(v.name, 0) for v in op.operands), default=0)
        lines.update((v.name, line) for v in op.results)
    for op in reversed(procedure.statements):
        line = max((lines[v.name] for v in op.results), default=0)
        for v in op.operands:
            lines[v.name] = lines.get(v.name) or line
    return lines
