"""`wscc verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from wscc.backends.emit_files import load_artifact
from wscc.backends.verify_program import Verdict, verify_program
from wscc.cli.common import json_option, show_json


@click.command("verify")
@click.argument("folder", metavar="DIR")
@json_option
def verify_command(folder: str, as_json: bool) -> int:
    """Check the compiled program in DIR without running it."""
    verdict = verify_program(load_artifact(Path(folder)))
    if as_json:
        findings = [asdict(f) for f in verdict.findings]
        show_json({"ok": verdict.ok, "findings": findings, "min_slot_depth": verdict.min_slot_depth})
    else:
        _show(verdict)
    return 0 if verdict.ok else 1


def _show(verdict: Verdict) -> None:
    for finding in verdict.findings:
        click.echo(str(finding))
    if verdict.left_out:
        click.echo(f"and {verdict.left_out:,} more")
    if verdict.ok:
        rows = {
            "messages": f"{verdict.messages:,} per step, each with its slot",
            "instructions": f"{verdict.instructions:,} in {verdict.calls:,} calls",
            "min slot depth": f"{verdict.min_slot_depth}",
            "verified in": f"{verdict.seconds:.2f} s",
        }
        for name, value in rows.items():
            click.echo(f"{name:<18}{value}")
