"""The profile of a program: the FLOPs of its model, and the op and line of the model of each instruction."""

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
    """The origins of the channels (-1: none) and kernels of a procedure, as numbers in `Profile.origins`; kernel k is
    executed by the roles `Profile.roles[executed[k]]`."""

    name: str
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    executed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """The origins of all instructions. `model_flops` are those of a step without recomputation and without entries
    that a causal mask hides; `file` is the name of the model file."""

    model_flops: int
    file: str = ""
    origins: tuple[Origin, ...] = ()
    roles: tuple[tuple[int, ...], ...] = ()
    procedures: tuple[ProcedureOrigins, ...] = ()

    def channels(self, procedure: str) -> tuple[Origin, ...]:
        """The origin of each channel of a procedure; empty if the profile has no such procedure."""
        origins = next((p for p in self.procedures if p.name == procedure), None)
        if origins is None:
            return ()
        return tuple(self.origins[n] if n >= 0 else UNKNOWN for n in origins.channels)

    def instructions(self, role: int, code: Code) -> tuple[Origin, ...]:
        """The origin of each instruction of a procedure in one role; `UNKNOWN` where the profile does not fit it."""
        origins = next((p for p in self.procedures if p.name == code.name), None)
        if origins is None:
            return (UNKNOWN,) * len(code.body)
        kernels = iter(
            self.origins[n]
            for n, mask in zip(origins.kernels, origins.executed, strict=True)
            if role in self.roles[mask]
        )
        channels = self.channels(code.name)
        out = []
        for x in code.body:
            if "channel" in INSTRUCTIONS[x.opcode].attr_names:
                channel = x.attr("channel")
                in_profile = isinstance(channel, int) and 0 <= channel < len(channels)
                out.append(channels[channel] if in_profile else UNKNOWN)  # type: ignore[index]
            else:
                out.append(next(kernels, UNKNOWN))
        return tuple(out)
