"""The output of commands: results, messages and errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from wscc.diagnostics import Code, CompileError, Diagnostic, Proposal, UsageError
from wscc.diagnostics.render import one_line, render

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="print one JSON object")(command)


def show_json(value: dict[str, Any]) -> None:
    # Imported here, since it brings NumPy, and help and most errors are shown without it.
    from wscc.files import to_json

    click.echo(to_json(value, indent=2))


def say(message: str) -> None:
    """A message or progress, to stderr."""
    click.echo(message, err=True)


def on_terminal() -> bool:
    return sys.stderr.isatty()


def report_usage(problem: click.ClickException, *, as_json: bool) -> int:
    """The exit status of a command line that cannot be read; it is shown as click words it, and as an error object."""
    if as_json:
        _show_error(Diagnostic(Code.OPTION, problem.format_message(), help=_help_of(problem)))
    problem.show(sys.stderr)
    return 2


def _help_of(problem: click.ClickException) -> str:
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    return f"see `{context.command_path} --help`" if context else ""


def _as_json(p: Proposal) -> dict[str, Any]:
    fields: dict[str, Any] = {"options": list(p.options), "change": p.words}
    if p.edit:
        fields["edit"] = {"start": p.edit.span.start, "end": p.edit.span.end, "text": p.edit.text}
    return fields


def _show_error(first: Diagnostic) -> None:
    span = first.label.span
    place = {"file": span.file, "line": span.line, "column": span.column}
    proposals = [_as_json(p) for p in first.proposals]
    error = {"code": str(first.code), "message": first.message, **place, "help": first.help}
    show_json({"error": {**error, "proposals": proposals}})


def report_error(error: CompileError, *, as_json: bool) -> int:
    """The exit status of an error; it is shown rendered on stderr, and as an object on stdout with `--json`."""
    if as_json:
        _show_error(error.diagnostics[0])
    text, last = render(error), one_line(error.diagnostics[0])
    say(text)
    if as_json and text.splitlines()[-1] != last:
        say(last)
    return 2 if isinstance(error, UsageError) else 1
