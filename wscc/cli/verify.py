"""The command `wscc verify`."""

from __future__ import annotations

from dataclasses import asdict

import click

from wscc.api.program import load
from wscc.api.results import Verification
from wscc.cli.output import json_option, show_json
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
    verification = load(folder).verify(semantics=semantics or meaning)
    if as_json:
        findings = [asdict(f) for f in verification.findings]
        show_json(
            {"ok": verification.ok, "findings": findings, "min_slot_depth": verification.min_slot_depth}
        )
    else:
        _show(verification)
    return 0 if verification.ok else 1


def _show(verification: Verification) -> None:
    for finding in verification.findings:
        click.echo(str(finding))
    if verification.left_out:
        click.echo(f"and {verification.left_out:,} more")
    if verification.ok:
        rows = {
            "messages": f"{verification.messages:,} per step, each with its slot",
            "instructions": f"{verification.instructions:,} in {verification.calls:,} calls",
            "min slot depth": f"{verification.min_slot_depth}",
            "verified in": f"{verification.seconds:.2f} s",
        }
        if verification.semantics:
            rows["meaning"] = verification.semantics
        for name, value in rows.items():
            click.echo(f"{name:<18}{value}")
