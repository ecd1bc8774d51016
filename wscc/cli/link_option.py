"""Parsers of options that describe a machine and a size: `5x5`, `1KiB`, `bandwidth=256B/ns,flit=64B`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NoReturn

from wscc.diagnostics import Code, Diagnostic, UsageError, fail
from wscc.frontend.ast import Coord, DeadDie
from wscc.frontend.overrides import dead as read_dead
from wscc.frontend.units import EXAMPLES, UNITS, Dimension
from wscc.machine.wafer import OPEN, Coordinate, Joint, Link, Torus, Wafer, dead_links

_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z/]*)")
_MESH: Final = re.compile(r"([0-9]{1,6}x)?([0-9]{1,6})x([0-9]{1,6})( +torus)?")
_WAFERS: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")
_DIE: Final = re.compile(r"[0-9]{1,6}(,[0-9]{1,6}){1,2}")
_FIELDS: Final = {
    "bandwidth": Dimension.BANDWIDTH, "latency": Dimension.TIME, "flit": Dimension.BYTES
}  # fmt: skip
_LINK: Final = Link()
_EXAMPLE: Final = "--link bandwidth=256B/ns,latency=1ns,flit=256B"
# The most bytes of a collective: beyond it byte times are not exact in a double.
MAX_BYTES: Final = 1 << 50
MAX_DIES: Final = 4096


def read_wafer(mesh: str, dead: Sequence[str]) -> Wafer:
    """The wafer of `--mesh` with the damage of `--dead`.

    Raises `UsageError` if either is malformed, `CompileError` W003 for a mesh of too many dies, W304 for damage off
    the mesh."""
    match = _MESH.fullmatch(mesh.strip().lower())
    if not match:
        _refuse(
            f"`--mesh {mesh}` is not ROWSxCOLUMNS",
            "write rows x columns: `--mesh 4x8`, or `--mesh '4x4x4 torus'`",
        )
    planes, rows, cols = int((match[1] or "0x")[:-1]), int(match[2]), int(match[3])
    if max(1, planes) * rows * cols > MAX_DIES:
        raise fail(
            Code.LIMIT, f"a mesh of {max(1, planes) * rows} x {cols} dies is too large: the limit is {MAX_DIES:,} dies",
            help="use a smaller mesh",
        )  # fmt: skip
    damage = [read_dead(text) for text in dead]
    torus = Torus(True, True, planes > 0) if match[4] else OPEN
    whole = Wafer(
        "x".join(mesh.split()[0].lower().split("x")),
        max(1, planes) * rows,
        cols,
        torus=torus,
        planes=planes or None,
    )
    return replace(
        whole,
        dead_dies=frozenset(_coordinate(whole, d.die) for d in damage if isinstance(d, DeadDie)),
        dead_links=dead_links(
            (_coordinate(whole, d.a), _coordinate(whole, d.b)) for d in damage if not isinstance(d, DeadDie)
        ),
    )


def _coordinate(wafer: Wafer, parsed: Coord) -> Coordinate:
    found = wafer.at(parsed.place)
    if found is None:
        raise fail(
            Code.OFF_MESH,
            f"{parsed.place} is not on the mesh of `{wafer.name}`",
            help=wafer.what_places_are(),
        )
    return found


def read_die(text: str, option: str) -> tuple[int, ...]:
    """The place of `option`, which need not be on the mesh. Raises `UsageError` if it is malformed."""
    match = _DIE.fullmatch(text)
    if not match:
        _refuse(f"`{option} {text}` is not a die", f"write row, column: `{option} 1,3`")
    return tuple(map(int, text.split(",")))


def read_bytes(text: str) -> int:
    """The whole number of bytes of `--bytes`, with or without a unit. Raises `UsageError` if it is malformed."""
    value, dimension = _quantity(text, "--bytes")
    if dimension not in (Dimension.BYTES, Dimension.NONE) or value.denominator != 1 or value > MAX_BYTES:
        _refuse(f"`--bytes {text}` is no number of bytes up to {MAX_BYTES}", "write `--bytes 64MB` or `1KiB`")
    return int(value)


def read_system(wafers: str, joined: str, wafer: Wafer) -> Wafer:
    """The system of `--wafers` wafers, RxC of them, whose edges are joined as `--joined` says; what that leaves out is
    as on the links of the wafer. Damage is of the whole system.

    Raises `UsageError` if either is malformed, `CompileError` W003 for a system of too many dies."""
    match = _WAFERS.fullmatch(wafers.strip().lower())
    if not match or "0" in match.groups():
        _refuse(f"`--wafers {wafers}` is not ROWSxCOLUMNS", "write rows x columns of wafers: `--wafers 2x2`")
    rows, cols = int(match[1]) * wafer.rows, int(match[2]) * wafer.cols
    if rows * cols > MAX_DIES:
        raise fail(
            Code.LIMIT, f"a system of {rows} x {cols} dies is too large: the limit is {MAX_DIES:,} dies"
        )
    bandwidth, latency, flit = read_link(joined, "--joined", wafer.link)
    joint = Joint(wafer.rows, wafer.cols, Link(bandwidth, float(latency), flit))
    return replace(wafer, name="system", rows=rows, cols=cols, joint=joint)


def read_link(text: str, option: str = "--link", link: Link = _LINK) -> tuple[int, Fraction, int]:
    """Bandwidth (B/s), latency (s) and flit (bytes) of `--link`; fields not named are those of `link`.

    Raises `UsageError` if it is malformed."""
    values = {
        "bandwidth": Fraction(link.bandwidth), "latency": Fraction(repr(link.latency)), "flit": Fraction(link.flit)
    }  # fmt: skip
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if name not in _FIELDS or not equals:
            _refuse(f"`{part}` is no field of `{option}`", f"write `{_EXAMPLE}`")
        number, dimension = _quantity(value, f"{option} {name}")
        if dimension is not _FIELDS[name]:
            _refuse(f"`{option} {name}={value}` needs a unit of {_FIELDS[name]}", f"write `{_EXAMPLE}`")
        if name != "latency" and (number < 1 or number.denominator != 1):
            _refuse(f"`{option} {name}={value}` is not a whole number above 0", f"write `{_EXAMPLE}`")
        values[name] = number
    return int(values["bandwidth"]), values["latency"], int(values["flit"])


def _quantity(text: str, option: str) -> tuple[Fraction, Dimension]:
    """A number with a unit of the language, or a rate such as `256B/ns`."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        _refuse(
            f"`{option}` cannot be `{text}`",
            f"write a number and a unit, such as {EXAMPLES[Dimension.BYTES]}",
        )
    number, unit = Fraction(match[1]), match[2]
    if unit in UNITS:
        dimension, factor = UNITS[unit]
        return number * factor, dimension
    amount, _, per = unit.partition("/")
    if amount in UNITS and per in UNITS and UNITS[per][0] is Dimension.TIME:
        return number * UNITS[amount][1] / UNITS[per][1], Dimension.BANDWIDTH
    _refuse(f"`{unit}` in `{option} {text}` is no unit", "units are B, kB, KiB, MB, GB/s, B/ns, ns, us, ...")
    return None


def _refuse(message: str, help: str) -> NoReturn:
    raise UsageError(Diagnostic(Code.OPTION, message, help=help))
