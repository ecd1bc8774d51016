"""The command `wscc run`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from wscc.api.results import Run
from wscc.cli.common import ModelOptions, model_options
from wscc.cli.output import json_option, say, show_json
from wscc.cli.program import read_program


@click.command("run")
@click.argument("program")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True)
@click.option("--check", is_flag=True, help="checked mode, and compare with one device (the reference)")
@click.option("--data", metavar="FILE", help="train on this text, .npz or .safetensors instead")
@click.option(
    "--validate-every",
    type=click.IntRange(1),
    metavar="K",
    help="loss of the rows that `validation` holds out after every K steps, not only after the last",
)
@click.option(
    "--weights",
    metavar="FILE",
    help="start from this .safetensors file (or the index of several), e.g. of Hugging Face; or go on from a folder",
)
@click.option(
    "--save",
    metavar="PATH",
    help="write the trained weights there: a .safetensors file, or a folder, with optimizer state",
)
@click.option("--seed", type=click.IntRange(0), help="seed of parameters and data instead of the file's")
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="processes that run the dies, best one for each core; --check runs all in one",
)
@model_options
@json_option
def run_command(
    program: str, steps: int, check: bool, data: str | None, validate_every: int | None, weights: str | None,
    save: str | None, seed: int | None, threads: int, options: ModelOptions, as_json: bool,
) -> int:  # fmt: skip
    """Run PROGRAM, an artifact folder or a .wsl file, with real numbers."""
    compiled = read_program(program, options)
    shown = _every(steps)
    first: list[int] = []  # of a training that goes on it is not 1

    def on_step(step: int, loss: float) -> None:
        first.append(step)
        if not as_json and step - first[0] + 1 in shown:
            click.echo(f"step {step:>5}   loss {loss:.6f}")

    def on_validation(step: int, loss: float) -> None:
        if not as_json:
            click.echo(f"step {step:>5}   validation loss {loss:.6f}")

    outcome = compiled.run(
        steps, weights=weights, data=data or None, seed=seed, processes=threads, check=check, save=save,
        arrays=False, validate_every=validate_every or 0, on_step=on_step, on_validation=on_validation,
    )  # fmt: skip
    for note in outcome.notes:
        say(f"note: {note}")
    if as_json:
        show_json(_as_json(outcome))
    else:
        _show(outcome)
    return 0 if outcome.check is None or outcome.check.ok else 1


def _every(steps: int) -> set[int]:
    """About twenty steps to show, the first and the last among them."""
    stride = max(1, steps // 20)
    return {1, steps, *range(stride, steps + 1, stride)}


def _as_json(outcome: Run) -> dict[str, Any]:
    out: dict[str, Any] = {
        "losses": outcome.losses.tolist(),
        "validation": [{"step": step, "loss": loss} for step, loss in outcome.validation.items()],
        "data": asdict(outcome.data),
        "seconds_per_step": outcome.seconds_per_step,
        "peak_bytes_per_die_max": outcome.peak_bytes_per_die_max,
        "notes": list(outcome.notes),
    }
    if outcome.experts:
        out["experts"] = [load.as_json() for load in outcome.experts]
    if outcome.check is not None:
        out["check"] = asdict(outcome.check) | {"dtype": str(outcome.check.dtype)}
    return out


def _show(outcome: Run) -> None:
    d = outcome.data
    if d.source == "arrays" or d.validation_rows:
        click.echo(
            f"{d.rows:,} rows to train on, {d.validation_rows:,} held out; "
            f"{d.labels_counted:,} labels counted, {d.labels_ignored:,} ignored"
        )
    click.echo(
        f"{outcome.seconds_per_step:.4f} s per step, {outcome.peak_bytes_per_die_max:,} bytes per die at most"
    )
    for load in outcome.experts:
        if load.step == len(outcome.losses):
            click.echo(str(load))
    c = outcome.check
    if c is not None:
        click.echo(
            f"check {'passed' if c.ok else 'FAILED'} in {c.types}: relative error of loss {c.loss_rel_err:.1e}, "
            f"gradients {c.grad_rel_err:.1e}, weights {c.weight_rel_err:.1e} (nearest to its limit: {c.worst})"
        )
