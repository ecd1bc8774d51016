"""The `wafer` section as a `machine.Wafer`: units turned into SI, exactly; coordinates checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Final

from wscc.diagnostics import Code, Span
from wscc.diagnostics.limits import Limits, limits_of
from wscc.frontend import ast
from wscc.frontend.machine.circuits import CIRCUITS, with_circuits
from wscc.frontend.report import Report, hint
from wscc.frontend.units import EXAMPLES, PERCENT, UNITS, Dimension
from wscc.machine.presets import PRESETS, preset
from wscc.machine.wafer import (
    MAX_DIES,
    OPEN,
    Circuits,
    Coordinate,
    Die,
    Hub,
    Leaves,
    Link,
    Torus,
    Wafer,
    dead_link,
)


@dataclass(frozen=True, slots=True)
class Spec:
    """A field of `die` or `link`: what it measures, the attribute it sets, that of the rate behind `at`, and of the
    number behind `of`."""

    dimension: Dimension
    attribute: str
    required: bool = False
    rate: str = ""
    of: str = ""


_DIE: Final = {
    "peak": Spec(Dimension.COMPUTE, "peak", required=True),
    "sram": Spec(Dimension.BYTES, "sram", required=True),
    "hbm": Spec(Dimension.BYTES, "hbm", rate="hbm_bandwidth"),
    "tile": Spec(Dimension.NONE, "tile"),
    "efficiency": Spec(Dimension.EFFICIENCY, "efficiency"),
}
_LINK: Final = {
    "bandwidth": Spec(Dimension.BANDWIDTH, "bandwidth", required=True),
    "latency": Spec(Dimension.TIME, "latency", required=True),
    "flit": Spec(Dimension.BYTES, "flit"),
    "energy": Spec(Dimension.ENERGY, "energy"),
    "channels": Spec(Dimension.NONE, "channels"),
    "circuits": Spec(Dimension.NONE, "up", of="of"),
    "reconfiguration": Spec(Dimension.TIME, "reconfiguration"),
}
# What links between wafers and nodes have not.
_OWN: Final = ("channels", "circuits", "reconfiguration")
NETWORK: Final = {
    **{name: spec for name, spec in _LINK.items() if name not in _OWN},
    "capacity": Spec(Dimension.BANDWIDTH, "capacity"),
}
# Of several leaves below a spine.
TREE: Final = {**NETWORK, "uplink": Spec(Dimension.BANDWIDTH, "uplink")}
JOINED: Final = {name: spec for name, spec in _LINK.items() if name not in _OWN}
_SWITCH: Final = {
    "capacity": Spec(Dimension.BANDWIDTH, "capacity", required=True),
    "latency": Spec(Dimension.TIME, "latency"),
}
SPECS: Final[Mapping[str, Mapping[str, Spec]]] = {"die": _DIE, "link": _LINK}
# No attribute of a link is called as one of a die.
_LIMITS: Final = {
    **limits_of(Leaves), **limits_of(Hub), **limits_of(Die), **limits_of(Link), **limits_of(Circuits),
}  # fmt: skip
_ALONG: Final = {"rows": Torus(rows=True), "columns": Torus(cols=True), "planes": Torus(planes=True)}
# What dies of one wafer may differ in: all run one plan of memory, whose SRAM they share.
_CLASS: Final = ("peak", "hbm")
_NO_HBM: Final = Die(hbm=0, hbm_bandwidth=0)


def resolve_wafer(wafer: ast.Wafer, report: Report) -> Wafer | None:
    """The machine, or None with the mistakes noted.

    Fields that the file leaves out come from the preset; without one, a die has no HBM and the rest are the
    defaults of `machine.wafer`.
    """
    mistakes = len(report.diagnostics)
    base = _base(wafer, report)
    entries = wafer.body.lines if wafer.body else ()
    sections = {e.kind: e for e in reversed(entries) if isinstance(e, ast.Fields)}
    _check_once(wafer, entries, report)
    without_preset = wafer.preset is None
    die = values_of(sections.get("die"), _DIE, without_preset, report)
    link = values_of(sections.get("link"), _LINK, without_preset, report)
    mesh = _mesh(entries, base, report)
    if len(report.diagnostics) > mistakes:  # `Wafer` refuses impossible numbers itself, without a span
        return None
    circuits: dict[str, Any] = {name: link.pop(name) for name in CIRCUITS if name in link}
    result = replace(
        base, name=wafer.name.id, **mesh,
        die=replace(base.die, **die), link=replace(base.link, **link),
    )  # fmt: skip
    result = replace(result, unlike=_unlike(result, entries, report))
    if circuits:
        result = with_circuits(result, circuits, sections["link"], report)
    result = add_damage(result, entries, report)
    return result if len(report.diagnostics) == mistakes else None


def _base(wafer: ast.Wafer, report: Report) -> Wafer:
    blank = Wafer(wafer.name.id, 1, 1, _NO_HBM, Link())
    if wafer.preset is None:
        return blank
    if wafer.preset.value not in PRESETS:
        help = hint(wafer.preset.value, PRESETS)
        report.add(Code.UNKNOWN_NAME, f"unknown preset `{wafer.preset.value}`", wafer.preset.span, "", help)
        return blank
    return preset(wafer.preset.value)


def _check_once(wafer: ast.Wafer, entries: tuple[ast.WaferEntry, ...], report: Report) -> None:
    kinds = [(_kind(e), e.span) for e in entries if isinstance(e, ast.Mesh | ast.AllToAll | ast.Fields)]
    report.unique(kinds, "section")
    if wafer.preset is not None:
        return
    examples = {
        "mesh": "mesh 4 x 8",
        "die": "die { peak 1800 TFLOP/s, sram 80 MB, hbm 72 GB at 1 TB/s }",
        "link": "link { bandwidth 4 TB/s, latency 200 ns }",
    }
    for kind, example in examples.items():
        if kind not in dict(kinds):
            message = f"wafer `{wafer.name.id}` has no `{kind}`"
            report.add(Code.MISSING, message, wafer.name.span, "", f"add, for example, `{example}`")


def _kind(entry: ast.Mesh | ast.AllToAll | ast.Fields) -> str:
    return entry.kind if isinstance(entry, ast.Fields) else "mesh"


# ---- die and link


def values_of(
    section: ast.Fields | None, specs: Mapping[str, Spec], without_preset: bool, report: Report
) -> dict[str, Any]:
    """Values of a section by attribute, for `replace`; the dataclass has their types."""
    if section is None:
        return {}
    report.unique(((f.name.id, f.name.span) for f in section.body.lines), "field")
    values: dict[str, Any] = {}
    for field in section.body.lines:
        spec = specs.get(field.name.id)
        if spec is None:
            message = f"`{section.kind}` has no field `{field.name.id}`"
            report.add(Code.UNKNOWN_KEY, message, field.name.span, "", hint(field.name.id, specs))
            continue
        _field(field, spec, values, without_preset, report)
    present = {f.name.id for f in section.body.lines}
    # An unknown field is probably the one that is missing, misspelled.
    complete = not without_preset or not present <= specs.keys()
    for name, spec in specs.items():
        if not complete and spec.required and name not in present:
            help = f"add, for example, `{name} {EXAMPLES[spec.dimension]}`"
            report.add(Code.MISSING, f"`{section.kind}` has no `{name}`", section.span, "", help)
    return values


def _field(
    field: ast.Field, spec: Spec, values: dict[str, Any], without_preset: bool, report: Report
) -> None:
    name = field.name.id
    value = _quantity(field.value, spec.dimension, name, _LIMITS[spec.attribute], report)
    if value is not None:
        values[spec.attribute] = value
    _of(field, spec, values, report)
    if field.rate is None:
        if spec.rate and without_preset:  # else the preset has one
            help = f"add the bandwidth: `{name} 72 GB at 1 TB/s`"
            report.add(Code.MISSING, f"`{name}` has no bandwidth", field.span, "", help)
    elif not spec.rate:
        report.add(Code.SYNTAX, f"`{name}` has no `at`", field.rate.span, "", "remove it")
    else:
        rate = _quantity(field.rate, Dimension.BANDWIDTH, f"{name} ... at", _LIMITS[spec.rate], report)
        if rate is not None:
            values[spec.rate] = rate


def _of(field: ast.Field, spec: Spec, values: dict[str, Any], report: Report) -> None:
    """Note the number behind `of`, which fields that have one need."""
    name = field.name.id
    if field.of is None:
        if spec.of:
            report.add(Code.MISSING, f"`{name}` has no `of`", field.span, "", f"write `{name} 2 of 4`")
    elif not spec.of:
        report.add(Code.SYNTAX, f"`{name}` has no `of`", field.of.span, "", "remove it")
    else:
        whole = ast.Quantity(field.of, "", span=field.of.span)
        value = _quantity(whole, Dimension.NONE, f"{name} ... of", _LIMITS[spec.of], report)
        if value is not None:
            values[spec.of] = value


def _quantity(
    q: ast.Quantity, expected: Dimension, name: str, limits: Limits, report: Report
) -> int | float | None:
    """The positive value in SI units, within its limits; None with the mistake noted. A file that wants no HBM, or
    no latency or energy, leaves them out."""
    if q.unit == PERCENT:
        message = f"`{name}` is measured in {expected}, and is a share only of dies unlike others"
        report.add(Code.UNIT, message, q.span, "", f"write it as in `{EXAMPLES[expected]}`")
        return None
    dimension, factor = UNITS[q.unit]
    if dimension is not expected:
        if not q.unit:
            message, label = f"`{name}` needs a unit", f"{expected} are wanted"
        elif expected is Dimension.NONE:
            message, label = f"`{name}` is {expected}, without a unit", "remove the unit"
        else:
            message, label = f"`{name}` is measured in {expected}, not {dimension}", f"{dimension}"
        report.add(Code.UNIT, message, q.span, label, f"write it as in `{EXAMPLES[expected]}`")
        return None
    value = q.number.value * factor
    if limits.whole and value.denominator != 1:
        message = f"`{name}` is not a whole number of {_whole(expected)}: {float(value):g}"
    elif value <= 0 or not limits.admit(value):
        message = f"`{name}` {'must be positive' if value <= 0 else f'is too large: it must be {limits}'}"
    else:
        return int(value) if limits.whole else float(value)
    report.add(Code.NUMBER, message, q.span)
    return None


def _whole(dimension: Dimension) -> str:
    return "units" if dimension is Dimension.NONE else str(dimension)


# ---- dies unlike the others


def _unlike(
    wafer: Wafer, entries: tuple[ast.WaferEntry, ...], report: Report
) -> tuple[tuple[Coordinate, Die], ...]:
    """The dies that are not as `die` says, by coordinate; where classes overlap, the later one changes the earlier."""
    found: dict[Coordinate, Die] = dict(wafer.unlike)
    for entry in entries:
        if isinstance(entry, ast.DieClass):
            for place in _places(entry, wafer, report):
                die = found.get(place, wafer.die)
                found[place] = replace(die, **_differing(entry.fields, die, report))
    return tuple(sorted((at, die) for at, die in found.items() if die != wafer.die))


def _places(entry: ast.DieClass, wafer: Wafer, report: Report) -> list[Coordinate]:
    """The coordinates of the box between two corners."""
    first, last = entry.first.place, entry.last.place
    for corner in (entry.first, entry.last):
        if wafer.at(corner.place) is None:
            help = f"the mesh is {wafer.size}: {wafer.what_places_are()}"
            report.add(Code.OFF_MESH, f"{corner.place} is not on the mesh", corner.span, "", help)
            return []
    sides = [range(min(a, b), max(a, b) + 1) for a, b in zip(first, last, strict=True)]
    return [at for place in product(*sides) if (at := wafer.at(place)) is not None]


def _differing(fields: ast.Fields, die: Die, report: Report) -> dict[str, int]:
    """What a class of dies changes of `die`, by attribute; a share is one of what `die` has."""
    values: dict[str, int] = {}
    report.unique(((f.name.id, f.name.span) for f in fields.body.lines), "field")
    for field in fields.body.lines:
        name = field.name.id
        if name not in _CLASS:
            message = (
                f"dies of one wafer have the same `{name}`"
                if name in _DIE
                else f"`die` has no field `{name}`"
            )
            code = Code.CHOICE if name in _DIE else Code.UNKNOWN_KEY
            report.add(code, message, field.name.span, "", "they may differ in `peak` and `hbm`")
            continue
        spec = _DIE[name]
        parts = [(field.value, spec.dimension, spec.attribute)]
        if field.rate is not None and not spec.rate:
            report.add(Code.SYNTAX, f"`{name}` has no `at`", field.rate.span, "", "remove it")
        elif field.rate is not None:
            parts.append((field.rate, Dimension.BANDWIDTH, spec.rate))
        for quantity, dimension, attribute in parts:
            value = _part(quantity, dimension, name, getattr(die, attribute), report)
            if value is not None:
                values[attribute] = value
    if values.get("hbm") == 0:
        values["hbm_bandwidth"] = 0
    return values


def _part(q: ast.Quantity, dimension: Dimension, name: str, whole: int, report: Report) -> int | None:
    """A value of a class of dies, which may be a share of that of the others, and none of HBM."""
    if q.unit != PERCENT:
        if q.number.value == 0 and name == "hbm":
            return 0
        value = _quantity(q, dimension, name, _LIMITS["peak"], report)
        return None if value is None else int(value)
    share = q.number.value / 100
    if share > 1 or (share <= 0 and name != "hbm") or int(whole * share) < (name != "hbm"):
        report.add(
            Code.NUMBER,
            f"`{name}` of {q.number.text} % of {whole:,}",
            q.span,
            "",
            "use more than 0, to 100 %",
        )
        return None
    return int(whole * share)


# ---- mesh and damage


def _mesh(entries: tuple[ast.WaferEntry, ...], base: Wafer, report: Report) -> dict[str, Any]:
    """What the mesh, or the dies of a node, say of a wafer; nothing without either."""
    node = next((e for e in entries if isinstance(e, ast.AllToAll)), None)
    if node is not None:
        return _node(node, base, report)
    mesh = next((e for e in entries if isinstance(e, ast.Mesh)), None)
    if mesh is None:
        return {}
    if min(mesh.extents) < 1:
        report.add(Code.NUMBER, "a mesh has at least one row and one column", mesh.span)
    elif prod(mesh.extents) > MAX_DIES:
        message = f"a mesh of {prod(mesh.extents)} dies is too large"
        report.add(Code.LIMIT, message, mesh.span, "", f"the limit is {MAX_DIES:,}")
    planes = 1 if mesh.planes is None else mesh.planes
    torus = torus_of(mesh.torus, report, mesh.planes or 0)
    return {
        "rows": planes * mesh.rows,
        "cols": mesh.columns,
        "planes": mesh.planes,
        "torus": torus,
        "hub": None,
    }


def _node(node: ast.AllToAll, base: Wafer, report: Report) -> dict[str, Any]:
    """A node; of a preset that is one, a part with the same switch where none is named."""
    if not 1 <= node.dies.value <= MAX_DIES:
        report.add(Code.NUMBER, f"a node has 1 to {MAX_DIES:,} dies", node.dies.span)
    hub = Hub(**values_of(node.switch, _SWITCH, True, report))
    if node.switch is None and base.hub is not None:
        hub = base.hub
    return {"rows": 1, "cols": int(node.dies.value), "planes": None, "torus": OPEN, "hub": hub}


def torus_of(torus: ast.Torus | None, report: Report, planes: int = 0) -> Torus:
    """Which ends are joined; open ones without a `torus`. `planes`: how many a mesh of three dimensions has."""
    if torus is None:
        return OPEN
    if torus.along is None:
        return Torus(rows=True, cols=True, planes=planes > 0)
    if torus.along.id not in _ALONG or (torus.along.id == "planes" and not planes):
        message = f"a torus is not closed along `{torus.along.id}`"
        report.add(
            Code.CHOICE,
            message,
            torus.along.span,
            "",
            "write `torus`, `torus along rows`, `torus along columns` or, of three dimensions, `torus along planes`",
        )
    return _ALONG.get(torus.along.id, OPEN)


def add_damage(wafer: Wafer, entries: tuple[ast.WaferEntry | ast.SystemEntry, ...], report: Report) -> Wafer:
    """The wafer with the dead dies and links among the entries, those off the mesh noted."""
    dies, links = set(wafer.dead_dies), set(wafer.dead_links)
    size = f"the mesh is {wafer.size}: {wafer.what_places_are()}"

    def on_mesh(c: ast.Coord, span: Span) -> Coordinate | None:
        found = wafer.at(c.place)
        if found is None:
            report.add(Code.OFF_MESH, f"{c.place} is not on the mesh", c.span or span, "", size)
        return found

    for entry in entries:
        if isinstance(entry, ast.DeadDie) and (die := on_mesh(entry.die, entry.span)):
            dies.add(die)
        elif isinstance(entry, ast.DeadLink):
            a = on_mesh(entry.a, entry.span)
            b = a and on_mesh(entry.b, entry.span)
            if not a or not b:
                continue
            if not wafer.joins(a, b):
                message = f"{entry.a.place} and {entry.b.place} are not neighbours"
                report.add(Code.OFF_MESH, message, entry.span, "", wafer.what_links_join())
                continue
            links.add(dead_link(a, b))
    return replace(wafer, dead_dies=frozenset(dies), dead_links=frozenset(links))
