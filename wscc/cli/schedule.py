"""`wscc schedule`."""

from __future__ import annotations

import click

from wscc.cli.common import ModelOptions, json_option, model_options, show_json, write_file
from wscc.driver.compile import schedule_table


@click.command("schedule")
@click.argument("model")
@click.option("-o", "--output", metavar="FILE", help="where to write the table (default: to stdout)")
@model_options
@json_option
def schedule_command(model: str, output: str | None, options: ModelOptions, as_json: bool) -> int:
    """Print the calls of a step of MODEL as a table, to be edited and given back with --schedule."""
    text = schedule_table(model, options.overrides, options.choices)
    if output:
        write_file(output, [text], help="without `-o` it is printed")
    if as_json:
        show_json({"schedule": text})
    elif not output:
        click.echo(text, nl=False)
    return 0
