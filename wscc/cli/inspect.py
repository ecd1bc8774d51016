"""The commands `wscc opt`, `passes`, `explain` and `fmt`, which show programs, passes and codes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

import click

from wscc.cli.common import read_call_order_file
from wscc.cli.output import json_option, show_json
from wscc.diagnostics import CompileError, UsageError
from wscc.diagnostics.explain import explain
from wscc.driver.module_text import after_passes, read_module
from wscc.files import read_source, write_file
from wscc.files.kinds import WIR
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse as parse_wsl
from wscc.ir.text.print import to_text
from wscc.passes.options import parse_passes
from wscc.passes.registry import PASSES

T = TypeVar("T")


@click.command("opt")
@click.argument("ir")
@click.option(
    "--passes", "chosen", default="", metavar="LIST", help="e.g. 'partition,place,lower_collectives'"
)
@json_option
def opt_command(ir: str, chosen: str, as_json: bool) -> int:
    """Run passes on a textual IR file and print the result; without --passes, print it canonically."""
    passes = _value_of(lambda words: parse_passes(words, read_call_order_file), chosen)
    module = read_module(read_source(ir, WIR))
    module = after_passes(module, passes)
    _print("module", to_text(module), as_json)
    return 0


def _value_of(read: Callable[[str], T], word: str) -> T:
    """The value that a word of the command line names. Raises `UsageError` for a mistake in it."""
    try:
        return read(word)
    except CompileError as error:
        raise UsageError(*error.diagnostics) from None


def _print(what: str, text: str, as_json: bool) -> None:
    if as_json:
        show_json({what: text})
    else:
        click.echo(text, nl=False)


@click.command("passes")
@click.argument("name", required=False)
@json_option
def passes_command(name: str | None, as_json: bool) -> int:
    """List the passes in pipeline order, or explain one with its options."""
    if name is not None and name not in PASSES:
        raise click.BadParameter(f"unknown pass `{name}`; the passes are {', '.join(PASSES)}")
    if as_json:
        show_json({n: inspect.getdoc(p) or "" for n, p in PASSES.items() if name in (None, n)})
    elif name is None:
        for key, cls in PASSES.items():
            click.echo(f"{key:<18}{_first_sentence(inspect.getdoc(cls) or '')}")
    else:
        click.echo(inspect.getdoc(PASSES[name]))
        for f in fields(PASSES[name]):
            click.echo(f"\noption {f.name} : {f.type} = {f.default}")
    return 0


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".") + "."


@click.command("explain")
@click.argument("code")
@json_option
def explain_command(code: str, as_json: bool) -> int:
    """What a diagnostic code means, with an example and what to do."""
    _print("text", _value_of(explain, code) + "\n", as_json)
    return 0


@click.command("fmt")
@click.argument("file")
@click.option("--write", is_flag=True, help="rewrite the file instead of printing it")
@json_option
def fmt_command(file: str, write: bool, as_json: bool) -> int:
    """Print a .wsl file in canonical form."""
    text = fmt(parse_wsl(read_source(file)))
    if write:
        write_file(file, [text], help="without `--write` it is printed")
    if as_json or not write:
        _print("text", text, as_json)
    return 0
