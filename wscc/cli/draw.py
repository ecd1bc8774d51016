"""The command `wscc draw`."""

from __future__ import annotations

import click

from wscc.api.drawing import DRAWINGS
from wscc.cli.common import ModelOptions, model_options
from wscc.cli.output import json_option, show_json
from wscc.cli.program import read_program
from wscc.files import write_file


@click.command("draw")
@click.argument("program")
@click.option(
    "--what", type=click.Choice(list(DRAWINGS)), default="wafer", show_default=True,
    help="where the dies lie, what stages do when, or what links carry",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="where to write the SVG (default: to stdout)")
@model_options
@json_option
def draw_command(program: str, what: str, output: str | None, options: ModelOptions, as_json: bool) -> int:
    """Draw PROGRAM, an artifact folder or a .wsl file, as an SVG picture."""
    picture = read_program(program, options).draw(what).svg
    if output:
        write_file(output, [picture], help="without `-o` it is printed")
    if as_json:
        show_json({"svg": picture})
    elif not output:
        click.echo(picture, nl=False)
    return 0
