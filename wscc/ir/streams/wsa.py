"""The printer of `.wsa`, the text of the streams level: the programs of all roles and the step of each stage.

Invariant: `parse_wsa(to_wsa(programs, steps)) == (programs, steps)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from wscc.ir.step import Affine
from wscc.ir.streams.program import (
    Address,
    Code,
    Column,
    Field,
    Instruction,
    Operand,
    Program,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
    Scalar,
)
from wscc.ir.streams.wsa_read import parse_wsa
from wscc.ir.views import contiguous_strides

__all__ = ["parse_wsa", "to_wsa"]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def to_wsa(programs: Sequence[Program], steps: Sequence[ProgramStep]) -> str:
    """The `.wsa` text (`grammar/wsa.lark`): one instruction per line, a step for each stage."""
    # Roles share most of their procedures, and of their instructions, and these of their operands: those objects are
    # printed once.
    codes = {id(c): c for program in programs for c in program.procedures}
    instructions: dict[int, Instruction] = {}
    for c in codes.values():
        instructions.update(zip(map(id, c.body), c.body, strict=True))
    operands = {id(o): o for x in instructions.values() for o in (*x.writes, *x.reads)}
    views = {number: operand_text(o) for number, o in operands.items()}
    texts = {n: f"    {_instruction(x, lambda o: views[id(o)])}" for n, x in instructions.items()}
    bodies = {number: _code(c, texts) for number, c in codes.items()}
    lines = [line for program in programs for line in _program(program, bodies)]
    for step in steps:
        lines += ["step {", *_step(step, "  "), "}"]
    return "\n".join([*lines, ""])


def instruction_text(x: Instruction) -> str:
    """The text of an instruction, such as `add f32[8]@a1 <- f32[8]@a0, f32[8]@128`."""
    return _instruction(x, operand_text)


def _instruction(x: Instruction, text: Callable[[Operand], str]) -> str:
    writes = ", ".join(map(text, x.writes))
    reads = ", ".join(map(text, x.reads))
    attrs = [f"{name}={_scalar(value)}" for name, value in x.attrs]
    return " ".join([x.opcode, *([writes] if writes else []), *([f"<- {reads}"] if reads else []), *attrs])


def operand_text(o: Operand) -> str:
    """The text of an operand, such as `f32[8,64;64,1]@a3+128`; row-major strides are left out."""
    dims = ",".join(map(str, o.shape))
    if o.strides != contiguous_strides(o.shape):
        dims += ";" + ",".join(map(str, o.strides))
    return f"{o.dtype}[{dims}]@{_place(o.arg, o.offset)}"


def _place(arg: int, offset: Field) -> str:
    text = f"${offset.index}" if isinstance(offset, Column) else str(offset)
    if arg < 0:
        return text
    return f"a{arg}" if offset == 0 else f"a{arg}+{text}"


def _scalar(value: Scalar) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Column():
            return f"${value.index}"
        case str():
            return json.dumps(value)
        case _:
            return repr(value)


def _program(program: Program, bodies: dict[int, str]) -> Iterator[str]:
    stage = f" stage {program.stage}" if program.stage else ""
    yield f"role {program.role}{stage} {{"
    yield from (bodies[id(code)] for code in program.procedures)
    yield "}"


def _code(code: Code, texts: dict[int, str]) -> str:
    head = f"  procedure {_name(code.name)}({code.args}) {{"
    return "\n".join([head, *map(texts.__getitem__, map(id, code.body)), "  }"])


def _step(step: ProgramStep, indent: str) -> Iterator[str]:
    for stmt in step:
        match stmt:
            case ProgramCall():
                yield f"{indent}call {_name(stmt.procedure)}({', '.join(map(_address, stmt.args))})"
            case ProgramLoop():
                yield f"{indent}loop {_name(stmt.variable)} {stmt.count} {{"
                yield from _step(stmt.body, indent + "  ")
                yield indent + "}"


def _address(address: Address) -> str:
    indexed = [f"{stride}*[{_affine(index)}]" for index, stride in address.terms]
    return " + ".join([str(address.base), *indexed])


def _affine(index: Affine) -> str:
    parts = [_name(v) if c == 1 else f"{c}*{_name(v)}" for v, c in index.terms]
    if index.base or not parts:
        parts.append(str(index.base))
    return " + ".join(parts) + (f" % {index.modulus}" if index.modulus else "")


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)
