"""Checks that a program is well formed: the errors with which a machine would refuse to load it, as findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wscc.backends.interpreter.binding import Routine, Templates
from wscc.backends.interpreter.load_checks import (
    check_calls,
    check_dies,
    check_memory,
    check_messages,
    is_loaded,
)
from wscc.backends.verify.distinct import Distinct
from wscc.backends.verify.findings import Finding, Findings
from wscc.diagnostics import CompileError
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code, Streams, extreme_calls, stage_of_role


def check_load(streams: Streams, manifest: Manifest, findings: Findings) -> bool:
    """True if the program can be loaded, which all other checks rely on; else there are findings. What was loaded
    before is not checked again."""
    for p in streams.programs:
        if len({c.name for c in p.procedures}) < len(p.procedures):
            findings.add(Finding("load", f"role {p.role} has two procedures of one name"))
    if is_loaded(streams, manifest):
        return not findings
    if not _holds(findings, lambda: check_dies(streams, manifest)):
        return False
    distinct, checked = Distinct(), _Checked(Templates(), {})
    routine_of: dict[int, Routine | None] = {}
    for p in streams.programs:
        for code in p.procedures:
            if (number := distinct.number(code)) not in routine_of:
                routine_of[number] = _routine(code, checked, findings)
    if findings:
        return False
    routines = {
        p.role: {c.name: r for c in p.procedures if (r := routine_of[distinct.number(c)])}
        for p in streams.programs
    }
    stages = stage_of_role(streams)
    for stage, step in enumerate(streams.steps):
        stage_routines = {role: r for role, r in routines.items() if stages[role] == stage}
        calls = list(extreme_calls(step))
        if _holds(findings, partial(check_calls, stage_routines, calls)):
            _holds(findings, partial(check_memory, streams, stage_routines, calls))
    _holds(findings, lambda: check_messages(streams, manifest, routines))
    return not findings


@dataclass(frozen=True, slots=True)
class _Checked:
    """Of instructions that procedures have in common: their templates, as `Routine.of` keeps them, and the texts of the
    errors of the others in a procedure, by its name."""

    templates: Templates
    errors: dict[tuple[int, int, str], str]


def _routine(code: Code, checked: _Checked, findings: Findings) -> Routine | None:
    """The routine of a procedure; None if an instruction is malformed, which is a finding."""
    malformed = False
    for i, x in enumerate(code.body):
        if id(x) in checked.templates.with_arguments(code.args):
            continue
        key = id(x), code.args, code.name
        if key not in checked.errors:
            try:
                Routine.of(Code(code.name, code.args, (x,)), checked.templates)
                continue
            except CompileError as error:
                checked.errors[key] = error.diagnostics[0].message
        malformed = True
        findings.add(Finding("load", checked.errors[key], "", code.name, i))
    return None if malformed else Routine.of(code, checked.templates)


def _holds(findings: Findings, check: Callable[[], object]) -> bool:
    """True if the check raises no error; its error becomes a finding."""
    try:
        check()
    except CompileError as error:
        findings.add(Finding("load", error.diagnostics[0].message))
        return False
    return True
