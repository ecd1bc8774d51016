"""Statements of the step on single stages, with references to the parts of those stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from wscc.ir.array import Kind
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.naming import Names
from wscc.ir.step import Affine, Call, Loop, Ref, substituted
from wscc.passes.stages.cut import Piece, chain_loop
from wscc.passes.stages.parts import Parts

NOW = Affine(0)
Body = list[Call | Loop]


def restricted(procedure: Procedure, positions: list[int], name: str) -> Procedure:
    """The procedure `name` with the outputs at `positions`, and only the inputs and ops that they need."""
    outputs = tuple(procedure.outputs[j] for j in positions)
    needed = _needed(procedure, outputs)
    body = tuple(op for op in procedure.statements if any(v.name in needed for v in op.results))
    inputs = tuple(v for v in procedure.inputs if v.name in needed)
    return replace(procedure, name=name, inputs=inputs, outputs=outputs, body=body)


def _needed(procedure: Procedure, outputs: tuple[Output, ...]) -> set[str]:
    needed = {o.value.name for o in outputs}
    for op in reversed(procedure.statements):
        if any(v.name in needed for v in op.results):
            needed |= {v.name for v in op.operands}
    return needed


@dataclass(frozen=True, slots=True)
class _Share:
    """Some outputs of a statement, on the chunk (`layered`) or stage `key`."""

    call: Call
    key: int
    layered: bool


@dataclass(slots=True)
class StepWriter:
    """Rewriter of statements, which adds the procedures that they call to `procedures`."""

    module: Module
    parts: Parts
    procedures: dict[str, Procedure]
    names: Names
    # By statement, chunk and first layer of a piece: the statement itself, so that no other has its identity, and the
    # arguments of its call that are the same for all micro-batches.
    _fixed: dict[tuple[int, int, int], tuple[Call | Loop, list[Ref | None]]] = field(default_factory=dict)

    # -- pieces of the chain ----------------------------------------------------------------------------

    def piece(self, piece: Piece, chunk: int, microbatch: Affine) -> Call | Loop:
        """The statement of a piece on its chunk, for one micro-batch."""
        variables = {self.microbatch: microbatch}
        if isinstance(piece.stmt, Loop):
            variables[piece.stmt.variable] = Affine(piece.first, ((piece.stmt.variable, 1),))
        key = id(piece.stmt), chunk, piece.first
        if key not in self._fixed:
            self._fixed[key] = piece.stmt, self._fixed_args(piece.call, chunk, variables)
        refs = zip(piece.call.args, self._fixed[key][1], strict=True)
        args = tuple(known or self._ref(r, chunk, variables, microbatch) for r, known in refs)
        call = Call(piece.call.procedure, args, piece.call.span)
        self.procedures[call.procedure] = self.module.procedure(call.procedure)
        return replace(piece.stmt, count=piece.count, body=(call,)) if isinstance(piece.stmt, Loop) else call

    def _fixed_args(self, call: Call, chunk: int, variables: dict[str, Affine]) -> list[Ref | None]:
        """The arguments of a call that are the same for all micro-batches; None for the others."""
        first, second = (
            self._call(call, chunk, variables | {self.microbatch: m}, m).args for m in (NOW, Affine(1))
        )
        return [a if a == b else None for a, b in zip(first, second, strict=True)]

    @property
    def microbatch(self) -> str:
        """The variable of the loop over micro-batches."""
        loop = self.module.step[chain_loop(self.module)]
        assert isinstance(loop, Loop)
        return loop.variable

    def _call(
        self, call: Call, chunk: int, variables: dict[str, Affine], microbatch: Affine = NOW
    ) -> Call:  # fmt: skip
        return replace(call, args=tuple(self._ref(r, chunk, variables, microbatch) for r in call.args))

    def _ref(self, ref: Ref, chunk: int, variables: dict[str, Affine], microbatch: Affine) -> Ref:
        index = tuple(substituted(a, variables) for a in ref.index)
        if ref.array not in self.parts.of:
            return replace(ref, index=index)
        array = self.module.array(ref.array)
        return self.parts.of[ref.array][self.parts.key(array, chunk)].ref(index, microbatch)

    # -- statements before and after the chain ----------------------------------------------------------

    def outside(self, stmt: Call | Loop, *, after: bool) -> dict[int, Body]:
        """By stage, the statements that it runs for a statement outside the chain.

        Before the chain, every stage with a part computes it; after the chain, only the owner of several copies
        completes, counts and updates its own.
        """
        piece = Piece(stmt)
        procedure = self.module.procedure(piece.call.procedure)
        groups: dict[tuple[bool, tuple[int, ...]], list[int]] = {}
        for j in range(len(procedure.outputs)):
            groups.setdefault(self._location(procedure, piece.call, j, after=after), []).append(j)
        bodies: dict[int, Body] = {}
        for (layered, keys), outputs in groups.items():
            call = self._sliced(procedure, piece.call, outputs, whole=len(groups) == 1)
            for key in keys:
                share = _Share(call, key, layered)
                bodies.setdefault(key % self.parts.stages, []).append(self._shared(stmt, share))
        return bodies

    def _location(
        self, procedure: Procedure, call: Call, output: int, *, after: bool
    ) -> tuple[bool, tuple[int, ...]]:  # fmt: skip
        """Whether an output is computed chunk by chunk, and the chunks or else stages that compute it."""
        needed = _needed(procedure, (procedure.outputs[output],))
        refs = [call.args[len(procedure.inputs) + output]]
        refs += [r for v, r in zip(procedure.inputs, call.args, strict=False) if v.name in needed]
        names = [r.array for r in refs if r.array in self.parts.of]
        if not names:
            return False, tuple(range(self.parts.stages))
        first = self.module.array(names[0])
        keys = tuple(self.parts.of[first.name])
        layered = self.parts.is_layered(first)
        if after and not layered:
            keys = (self.parts.owner(first.name),)
        for r in refs:
            array = self.module.array(r.array)
            if array.name not in self.parts.of and array.kind in (Kind.STATE, Kind.GRAD):
                self.parts.add(array, first)
        return layered, keys

    def _sliced(self, procedure: Procedure, call: Call, outputs: list[int], *, whole: bool) -> Call:
        if whole:
            self.procedures[procedure.name] = procedure
            return call
        name = self.names.of((procedure.name, *outputs), f"{procedure.name}.part")
        sliced = self.procedures[name] = restricted(procedure, outputs, name)
        n = len(procedure.inputs)
        input_names = {v.name for v in sliced.inputs}
        args = [r for v, r in zip(procedure.inputs, call.args, strict=False) if v.name in input_names]
        return Call(name, (*args, *(call.args[n + j] for j in outputs)))

    def _shared(self, stmt: Call | Loop, share: _Share) -> Call | Loop:
        if isinstance(stmt, Call):
            return self._call(share.call, share.key, {})
        if not share.layered:
            # A loop over micro-batches: each stage runs all of it.
            return replace(stmt, body=(self._call(share.call, share.key, {}),))
        part = next(
            self.parts.of[r.array][share.key]
            for r in share.call.args
            if r.array in self.parts.of and self.parts.is_layered(self.module.array(r.array))
        )
        variables = {stmt.variable: Affine(part.first, ((stmt.variable, 1),))}
        call = self._call(share.call, share.key, variables)
        return replace(stmt, count=part.array.extents[0], body=(call,))

    # -- carried gradients that are sums ----------------------------------------------------------------

    def zeroing(
        self, stmts: list[Call | Loop], gradient: str, chunk: int, microbatch: Affine
    ) -> Iterator[Loop | Call]:
        """The statements that zero the part of a carried gradient on a chunk, if it has one."""
        if chunk not in self.parts.of[gradient]:
            return
        for stmt in stmts:
            piece = Piece(stmt)
            procedure = self.module.procedure(piece.call.procedure)
            for j, ref in enumerate(piece.call.args):
                if ref.array == gradient:
                    name = self.names.of((procedure.name, j), f"{procedure.name}.part")
                    self.procedures[name] = restricted(procedure, [j], name)
                    call = self._call(Call(name, (ref,)), chunk, {}, microbatch)
                    yield replace(stmt, body=(call,)) if isinstance(stmt, Loop) else call
