"""The command `wscc call-order`, and `wscc schedule`, its old name."""

from __future__ import annotations

import click

from wscc.cli.common import ModelOptions, model_options
from wscc.cli.output import json_option, show_json
from wscc.driver.compile import call_order_text
from wscc.files import write_file

_output_option = click.option(
    "-o", "--output", metavar="FILE", help="where to write the table (default: to stdout)"
)


@click.command("call-order")
@click.argument("model")
@_output_option
@model_options
@json_option
def call_order_command(model: str, output: str | None, options: ModelOptions, as_json: bool) -> int:
    """Print the calls of a step of MODEL as a table, to be edited and given back with --call-order."""
    return _print_order(model, output, options, "call_order" if as_json else "")


@click.command("schedule", hidden=True)
@click.argument("model")
@_output_option
@model_options
@json_option
def schedule_command(model: str, output: str | None, options: ModelOptions, as_json: bool) -> int:
    """The old name of `wscc call-order`."""
    return _print_order(model, output, options, "schedule" if as_json else "")


def _print_order(model: str, output: str | None, options: ModelOptions, field: str) -> int:
    """Write the order to a file, print it, or print it as this `field` of a JSON object. The exit status."""
    text = call_order_text(model, options.overrides, options.choices)
    if output:
        write_file(output, [text], help="without `-o` it is printed")
    if field:
        show_json({field: text})
    elif not output:
        click.echo(text, nl=False)
    return 0
