"""What is known of a program beyond what runs it: the FLOPs of its model, and where each instruction comes from."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Code


@dataclass(frozen=True, slots=True)
class Origin:
    """An op of the sharded level: its name, its kind (of a message: `stream`, or the reshard that it is part of), and
    its line of the model file, 0 where it has none."""

    op: str
    kind: str
    line: int


UNKNOWN = Origin("", "message", 0)


@dataclass(frozen=True, slots=True)
class ProcedureOrigins:
    """By number in `Profile.origins`: that of every channel (-1: none), and of every kernel of the procedure, of
    which kernel k is executed by the roles `Profile.roles[executed[k]]`."""

    name: str
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    executed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """`model_flops` are those of a step without recomputation, and without what a mask lets nobody compute; `file` is
    the name of the model file."""

    model_flops: int
    file: str = ""
    origins: tuple[Origin, ...] = ()
    roles: tuple[tuple[int, ...], ...] = ()
    procedures: tuple[ProcedureOrigins, ...] = ()

    def channels(self, procedure: str) -> tuple[Origin, ...]:
        """By channel of a procedure."""
        found = next((p for p in self.procedures if p.name == procedure), None)
        if found is None:
            return ()
        return tuple(self.origins[n] if n >= 0 else UNKNOWN for n in found.channels)

    def instructions(self, role: int, code: Code) -> tuple[Origin, ...]:
        """By instruction of a procedure in one role; `UNKNOWN` where the profile does not fit the code."""
        found = next((p for p in self.procedures if p.name == code.name), None)
        if found is None:
            return (UNKNOWN,) * len(code.body)
        kernels = iter(
            self.origins[n]
            for n, mask in zip(found.kernels, found.executed, strict=True)
            if role in self.roles[mask]
        )
        channels = self.channels(code.name)
        out = []
        for x in code.body:
            if "channel" in INSTRUCTIONS[x.opcode].attr_names:
                channel = x.attr("channel")
                known = isinstance(channel, int) and 0 <= channel < len(channels)
                out.append(channels[channel] if known else UNKNOWN)  # type: ignore[index]
            else:
                out.append(next(kernels, UNKNOWN))
        return tuple(out)
