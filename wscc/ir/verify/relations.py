"""The check of the relation of an array to another one: kinds, shapes and element types fit its role."""

from __future__ import annotations

from typing import Final

from wscc.ir.array import Array, Kind, Relation, Role
from wscc.ir.module import Module
from wscc.ir.text.words import spell_type
from wscc.ir.verify.finding import Findings, Place

# The kinds that an array in a role may have; pending sums have any.
_KINDS: Final[dict[Role, tuple[Kind, ...]]] = {
    Role.GRADIENT: (Kind.GRAD, Kind.CARRIED),
    Role.MOMENT: (Kind.STATE,),
    Role.PARTIAL: tuple(Kind),
    Role.COPY: (Kind.COMPUTE_COPY,),
}


def check_relation(module: Module, place: Place, array: Array, relation: Relation) -> Findings:
    """The mistakes of a relation: the other array exists, with the same shape and, of a pending sum, element type."""
    role, name = relation.role, relation.array
    pieces = (a for a in module.arrays if a.of == name)
    other = next((a for a in module.arrays if a.name == name), next(pieces, None))
    if other is None:
        yield place.wrong(f"it is the {role} of `%{name}`, which is no array")
    elif array.kind not in _KINDS[role]:
        yield place.wrong(f"it is the {role} of `%{name}`, and of kind `{array.kind}`")
    elif array.type.shape != other.type.shape or (
        role is Role.PARTIAL and array.type.dtype is not other.type.dtype
    ):
        types = f"{spell_type(array.type)} and {spell_type(other.type)}"
        yield place.wrong(f"it is the {role} of `%{name}`, and they are {types}")
    elif array.unpadded != other.unpadded:
        shapes = f"{list(array.unpadded)} and {list(other.unpadded)}"
        yield place.wrong(f"it is the {role} of `%{name}`, and without pads they are {shapes}")
