"""`wscc verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from wscc.backends.artifact.files import load_artifact
from wscc.backends.verify import Verdict, verify_program
from wscc.backends.verify.findings import Finding
from wscc.cli.common import json_option, show_json
from wscc.diagnostics import Code, fail
from wscc.equivalence import Equivalence, check_semantics

HOW = {
    True: "run in f64, equal to one device",
    False: "too large to run here; every instruction is what the passes make of its graph",
}


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
    artifact = load_artifact(Path(folder))
    verdict = verify_program(artifact)
    compared = check_semantics(artifact) if (semantics or meaning) and verdict.ok else None
    findings = (*verdict.findings, *(compared.findings if compared else ()))
    if as_json:
        show_json(
            {
                "ok": not findings,
                "findings": [asdict(f) for f in findings],
                "min_slot_depth": verdict.min_slot_depth,
            }
        )
    else:
        _show(verdict, findings, compared)
    return 1 if findings else 0


def _show(verdict: Verdict, findings: tuple[Finding, ...], compared: Equivalence | None) -> None:
    for finding in findings:
        click.echo(str(finding))
    if verdict.left_out:
        click.echo(f"and {verdict.left_out:,} more")
    if not findings:
        rows = {
            "messages": f"{verdict.messages:,} per step, each with its slot",
            "instructions": f"{verdict.instructions:,} in {verdict.calls:,} calls",
            "min slot depth": f"{verdict.min_slot_depth}",
            "verified in": f"{verdict.seconds:.2f} s",
        }
        if compared:
            rows["meaning"] = HOW[compared.ran]
        for name, value in rows.items():
            click.echo(f"{name:<18}{value}")
