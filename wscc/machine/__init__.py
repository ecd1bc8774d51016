"""The machine: wafers, their topology and presets."""

from wscc.machine.presets import preset, preset_names
from wscc.machine.topology import Topology, mesh_topology
from wscc.machine.wafer import Coordinate, Die, Link, Wafer, dead_link, dead_links

__all__ = [
    "Coordinate",
    "Die",
    "Link",
    "Topology",
    "Wafer",
    "dead_link",
    "dead_links",
    "mesh_topology",
    "preset",
    "preset_names",
]
