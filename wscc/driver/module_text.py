"""Modules in textual form (`.wir`) that a person may have written or changed: each mistake is that of the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from wscc.diagnostics import NO_SPAN, Code, CompileError, Diagnostic, Label, Source, Span
from wscc.driver.pipeline import Pipeline
from wscc.ir.module import Module
from wscc.ir.text.parse import parse
from wscc.ir.verify import verify
from wscc.ir.verify.program import check_program
from wscc.passes.base import Pass

UNLIKE_ANY: Final = (
    "the text is a valid module, but no pass before this one makes such; if one did, report it"
)
_MAX_MISTAKES: Final = 8  # that are shown of a text


def read_module(source: Source) -> Module:
    """The valid module that a text spells. Raises W601, with the line of each mistake."""
    module = parse(source)
    _refuse(verify(module), module.spans.title)
    return module


def after_passes(module: Module, passes: Iterable[Pass]) -> Module:
    """A module that was read from a text, after these passes.

    Raises `CompileError`: W603 for passes that do not fit it, W601 for what they cannot work on though it is valid, and
    what the passes refuse; in a place of the text, if need be its first line.
    """
    chosen, title = tuple(passes), module.spans.title
    if not chosen:
        return module
    _refuse(check_program(module), title)
    done: list[str] = []
    try:
        return Pipeline(chosen).run(module, observe=lambda name, _: done.append(name))
    except CompileError as error:
        raise CompileError(*(_of_the_text(d, title) for d in error.diagnostics)) from error
    except Exception as problem:  # whatever a pass runs into on a module that no pass has made
        name = next((p.name for p in chosen if p.name not in done), chosen[-1].name)
        words = f"`{name}` cannot work on this module: {type(problem).__name__} {problem}".rstrip()
        raise CompileError(_of_the_text(Diagnostic(Code.BROKEN_PASS, words), title)) from problem


def _refuse(mistakes: Iterable[Diagnostic], title: Span) -> None:
    if found := list(islice(mistakes, _MAX_MISTAKES)):
        raise CompileError(*(_of_the_text(d, title) for d in found))


def _of_the_text(d: Diagnostic, title: Span) -> Diagnostic:
    """The diagnostic with a place in the text; a pass that breaks a module of a text is not known to be at fault."""
    label = Label(title) if d.label.span == NO_SPAN else d.label
    if d.code is not Code.BROKEN_PASS:
        return replace(d, label=label)
    return replace(d, code=Code.BAD_IR, label=label, help=UNLIKE_ANY)
