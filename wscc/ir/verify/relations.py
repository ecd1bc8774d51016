"""Whether an array can be what it says that it is to another one."""

from __future__ import annotations

from typing import Final

from wscc.ir.array import Array, Kind, Relation, Role
from wscc.ir.module import Module
from wscc.ir.text.words import spell_type
from wscc.ir.verify.finding import Findings, Place

# The kinds that an array in a role may have; incomplete sums are of any.
_KINDS: Final[dict[Role, tuple[Kind, ...]]] = {
    Role.GRADIENT: (Kind.GRAD, Kind.CARRIED),
    Role.MOMENT: (Kind.STATE,),
    Role.PARTIAL: tuple(Kind),
    Role.COPY: (Kind.COMPUTE_COPY,),
}


def check_relation(module: Module, place: Place, array: Array, relation: Relation) -> Findings:
    """The other array exists and is of the same shape; an incomplete sum is of the same element type too."""
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
