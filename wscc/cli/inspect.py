"""`wscc opt`, `passes`, `explain` and `fmt`: looking at programs, passes and codes."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import click

from wscc.cli.common import json_option, show_json
from wscc.diagnostics.render import explain
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse as parse_wsl
from wscc.frontend.scan import read_source
from wscc.ir.parse import parse as parse_wir
from wscc.ir.print import to_text
from wscc.passes import PASSES
from wscc.passes.options import parse_passes
from wscc.pipeline import check, facts_of, run_passes


@click.command("opt")
@click.argument("ir")
@click.option(
    "--passes", "chosen", default="", metavar="LIST", help="e.g. 'partition,place,lower_collectives'"
)
def opt_command(ir: str, chosen: str) -> int:
    """Run passes on a textual IR file and print the result; without --passes, print it canonically."""
    module = parse_wir(read_source(ir))
    check(module, "parse")
    passes = parse_passes(chosen)
    module = run_passes(module, passes, facts=facts_of(module))
    click.echo(to_text(module), nl=False)
    return 0


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
            click.echo(f"{key:<18}{(inspect.getdoc(cls) or '').splitlines()[0]}")
    else:
        click.echo(inspect.getdoc(PASSES[name]))
        for f in fields(PASSES[name]):
            click.echo(f"\noption {f.name} : {f.type} = {f.default}")
    return 0


@click.command("explain")
@click.argument("code")
def explain_command(code: str) -> int:
    """What a diagnostic code means, with an example and what to do."""
    click.echo(explain(code))
    return 0


@click.command("fmt")
@click.argument("file")
@click.option("--write", is_flag=True, help="rewrite the file instead of printing it")
def fmt_command(file: str, write: bool) -> int:
    """Print a .wsl file in canonical form."""
    text = fmt(parse_wsl(read_source(file)))
    if write:
        Path(file).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    return 0
