"""`wscc verify`."""

from __future__ import annotations

from dataclasses import asdict

import click

from wscc.api.program import load
from wscc.api.results import Verification
from wscc.cli.common import json_option, show_json
from wscc.diagnostics import Code, fail


@click.command("verify")
@click.argument("folder", metavar="DIR")
@click.option("--semantics", is_flag=True, help="also compare what it computes with its graph")
@click.option("--meaning", is_flag=True, hidden=True)
@json_option
def verify_command(folder: str, semantics: bool, meaning: bool, as_json: bool) -> int:
    """Check the compiled program in DIR without running it; with --semantics, also what it computes."""
    if folder.endswith(".wsl"):
        raise fail(
            Code.UNREADABLE, f"`{folder}` is a model, and `verify` reads what was compiled",
            help=f"run `wscc compile {folder} -o DIR`, then `wscc verify DIR`",
        )  # fmt: skip
    found = load(folder).verify(semantics=semantics or meaning)
    if as_json:
        findings = [asdict(f) for f in found.findings]
        show_json({"ok": found.ok, "findings": findings, "min_slot_depth": found.min_slot_depth})
    else:
        _show(found)
    return 0 if found.ok else 1


def _show(found: Verification) -> None:
    for finding in found.findings:
        click.echo(str(finding))
    if found.left_out:
        click.echo(f"and {found.left_out:,} more")
    if found.ok:
        rows = {
            "messages": f"{found.messages:,} per step, each with its slot",
            "instructions": f"{found.instructions:,} in {found.calls:,} calls",
            "min slot depth": f"{found.min_slot_depth}",
            "verified in": f"{found.seconds:.2f} s",
        }
        if found.semantics:
            rows["meaning"] = found.semantics
        for name, value in rows.items():
            click.echo(f"{name:<18}{value}")
