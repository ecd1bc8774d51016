"""The command `wscc collective`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import click

from wscc.backends.collective.run import Execution, execute
from wscc.cli.link_option import read_bytes, read_die, read_link, read_system, read_wafer
from wscc.cli.output import json_option, show_json
from wscc.cli.sweep import plot_sweep, show_sweep, sweep
from wscc.collectives.algorithms import ALGORITHMS, HIERARCHICAL
from wscc.collectives.choose import AUTO, Outcome, collective, make_request
from wscc.collectives.plan import Op, Request
from wscc.collectives.plan_file import plan_lines
from wscc.collectives.timing import LinkModel
from wscc.diagnostics import Code, CompileError, Diagnostic, UsageError, fail
from wscc.files import write_file
from wscc.machine.links import LINK_MODELS
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Link, Wafer

OPS: Final = [str(op) for op in Op]


@click.command("collective")
@click.argument("op", type=click.Choice(OPS))
@click.option("--mesh", required=True, metavar="RxC", help="rows x columns of dies")
@click.option("--bytes", "size", required=True, metavar="N", help="e.g. 64MB or 1KiB; see below")
@click.option("--link", default="", metavar="FIELDS", help="e.g. bandwidth=256B/ns,latency=1ns,flit=256B")
@click.option("--wafers", metavar="RxC", help="a system of so many wafers, each a mesh of its own")
@click.option("--joined", default="", metavar="FIELDS", help="as --link, of two edges of wafers that meet")
@click.option("--link-model", type=click.Choice(LINK_MODELS), default=LINK_MODELS[0], show_default=True)
@click.option(
    "--algorithm", type=click.Choice([AUTO, *ALGORITHMS, HIERARCHICAL]), default=AUTO, show_default=True
)
@click.option("--dead", multiple=True, metavar="WHAT", help="die:R,C or link:R,C-R,C; may be repeated")
@click.option("--root", metavar="R,C", help="who sends a broadcast or p2p (default: the first live die)")
@click.option("--to", "target", metavar="R,C", help="who receives a p2p (default: the last live die)")
@click.option("--check", is_flag=True, help="execute the plan, and compare what every die ends with")
@click.option("--plan", metavar="FILE", help="write the transfers as JSON lines")
@click.option("--schedule", "old_plan", metavar="FILE", hidden=True, help="the old spelling of --plan")
@click.option("--sweep", "sweeping", is_flag=True, help="a table of sizes from 1 KiB to N by algorithm")
@click.option("--plot", metavar="FILE", help="draw the table of --sweep; needs matplotlib")
@json_option
def collective_command(
    op: str, mesh: str, size: str, link: str, wafers: str | None, joined: str, link_model: str, algorithm: str,
    dead: tuple[str, ...], root: str | None, target: str | None, check: bool, plan: str | None,
    old_plan: str | None, sweeping: bool, plot: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Plan the collective OP over all live dies of a mesh or system, and show its time against a lower bound.

    N is the whole vector for all_gather, reduce_scatter and all_reduce, the message for broadcast and p2p, and
    what each die holds for all_to_all. `--check` runs the messages on dies with memories of their own, on whole
    numbers: one for each byte, or fewer in proportion where there are very many bytes.
    """
    if check and (sweeping or plot):
        message = "`--check` executes one plan, not those of a table"
        raise UsageError(Diagnostic(Code.OPTION, message, help="leave out `--sweep` and `--plot`"))
    wafer = _machine(mesh, dead, link, wafers, joined)
    topology = mesh_topology(wafer)
    model = _model(link, link_model).with_system(wafer)
    ends = [None if text is None else _number(wafer, text, name) for name, text in
            (("--root", root), ("--to", target))]  # fmt: skip
    request = make_request(Op(op), topology, read_bytes(size), *ends)
    if sweeping or plot:
        rows = sweep(request, model, (algorithm,) if algorithm != AUTO else (*ALGORITHMS, AUTO))
        if plot:
            plot_sweep(plot, rows, f"{op} on {mesh}")
        if as_json:
            show_json({"op": op, "mesh": list(wafer.extents), "dies": len(request.dies), "rows": rows})
        else:
            show_sweep(rows)
        return 0
    outcome = collective(request, model, algorithm)
    rings = _flat_ring(request, model) if outcome.algorithm == HIERARCHICAL else None
    for path in filter(None, (plan, old_plan)):
        _write(path, outcome)
    executed = execute(request, outcome.timed.plan) if check else None
    if as_json:
        flat = {"ring_seconds": rings.timed.seconds} if rings else {}
        checked = {"check": _check(executed, wafer)} if executed else {}
        show_json({**_as_json(outcome, wafer), **flat, **checked})
    else:
        _show(outcome, wafer)
        if rings:
            click.echo(f"{'flat ring':<18}{rings.timed.seconds:.6g} s, ratio {rings.ratio:.4f}")
        if executed:
            _show_check(executed, outcome, wafer)
    return 0 if executed is None or executed.ok else 1


def _machine(mesh: str, dead: tuple[str, ...], link: str, wafers: str | None, joined: str) -> Wafer:
    if wafers is None:
        if joined:
            message = "`--joined` is of the edges of wafers"
            raise UsageError(Diagnostic(Code.OPTION, message, help="add `--wafers 2x2`"))
        return read_wafer(mesh, dead)
    if dead:
        message = "`--dead` is of one wafer, and the plans of a system are of whole ones"
        raise UsageError(Diagnostic(Code.OPTION, message, help="leave out `--dead` or `--wafers`"))
    bandwidth, latency, flit = read_link(link)
    own = replace(read_wafer(mesh, ()), link=Link(bandwidth, float(latency), flit))
    wafer = read_system(wafers, joined, own)
    for port in wafer.joint.links if wafer.joint else ():
        if port.is_faster_than(own.link):
            raise UsageError(_too_fast(port, own.link))
    return wafer


def _too_fast(port: Link, link: Link) -> Diagnostic:
    """The refusal of ports of an edge that are faster than the links of the wafers."""
    message = f"ports of an edge ({port.speed}) are faster than links of wafers ({link.speed}), for which bounds hold"
    fits = f"`--link {link.at_least(port).speed}` would work, or a slower `--joined`"
    return Diagnostic(Code.OPTION, message, help=fits)


def _flat_ring(request: Request, model: LinkModel) -> Outcome | None:
    """The ring through all dies, to compare with; None where there is none."""
    try:
        return collective(request, model, "ring")
    except CompileError:
        return None


def _check(executed: Execution, wafer: Wafer) -> dict[str, Any]:
    wrong = [list(wafer.place(d)) for d in executed.wrong]
    return {"ok": executed.ok, "elements": executed.elements, "wrong": wrong}


def _show_check(executed: Execution, outcome: Outcome, wafer: Wafer) -> None:
    size = outcome.request.bytes
    scale = f"{executed.elements:,} numbers"
    if executed.elements < size:
        scale += f", a reduced size: {size / max(executed.elements, 1):,.3g} bytes for each"
    wrong = ", ".join(str(wafer.place(d)) for d in executed.wrong)
    verdict = "passed" if executed.ok else f"FAILED on dies {wrong}"
    click.echo(f"{'check':<18}{verdict}: executed with {scale}")


def _model(link: str, kind: str) -> LinkModel:
    bandwidth, latency, flit = read_link(link)
    return LinkModel.of(bandwidth, latency, flit, kind)


def _number(wafer: Wafer, text: str, option: str) -> int:
    place = read_die(text, option)
    coordinate = wafer.at(place)
    if coordinate is None:
        raise fail(
            Code.OFF_MESH, f"die {place} of `{option}` is not on the mesh", help=wafer.what_places_are()
        )
    return wafer.number(coordinate)


def _write(path: str, outcome: Outcome) -> None:
    write_file(path, (f"{line}\n" for line in plan_lines(outcome.request, outcome.timed)))


def _as_json(outcome: Outcome, wafer: Wafer) -> dict[str, Any]:
    model = outcome.timed.model
    return {
        "op": str(outcome.request.op),
        "mesh": list(wafer.extents),
        "dies": len(outcome.request.dies),
        "bytes": outcome.request.bytes,
        "algorithm": outcome.algorithm,
        "seconds": outcome.timed.seconds,
        "bound_seconds": model.seconds(outcome.bound.time),
        "bound_kind": outcome.bound.kind,
        "ratio": outcome.ratio,
        "why": outcome.shortfall,
        "max_link_bytes": outcome.max_link_bytes,
        "messages": len(outcome.timed.plan.messages),
    }


def _show(outcome: Outcome, wafer: Wafer) -> None:
    fields = _as_json(outcome, wafer)
    for label, text in (
        (
            "collective",
            f"{fields['op']} of {fields['bytes']:,} bytes over {fields['dies']} dies of {wafer.size}",
        ),
        ("algorithm", f"{fields['algorithm']}, {fields['messages']:,} messages"),
        ("time", f"{fields['seconds']:.6g} s"),
        ("bound", f"{fields['bound_seconds']:.6g} s ({fields['bound_kind']}), ratio {fields['ratio']:.4f}"),
        ("fullest link", f"{fields['max_link_bytes']:,} bytes"),
    ):
        click.echo(f"{label:<18}{text}")
    if fields["why"]:
        click.echo(f"{'over the bound':<18}{fields['why']}")
