"""The syntax tree of a `.wsl` file: frozen data, compared by what is written (spans are not identity).

Comments are part of the tree (`Trivia`, `Body.opening`, `Body.tail`), so that printing never loses one.
Invariant, with `fmt`: `parse(fmt(tree)) == tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wscc.diagnostics import Span
from wscc.frontend.nodes import NO_TRIVIA as NO_TRIVIA
from wscc.frontend.nodes import Body as Body
from wscc.frontend.nodes import Line as Line
from wscc.frontend.nodes import Name as Name
from wscc.frontend.nodes import Node as Node
from wscc.frontend.nodes import Number as Number
from wscc.frontend.nodes import Quantity as Quantity
from wscc.frontend.nodes import Text as Text
from wscc.frontend.nodes import Trivia as Trivia

# ---- expressions


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """`op` is one of `+ - * / @`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negative(Node):
    operand: Expr


@dataclass(frozen=True, slots=True)
class Keyword(Node):
    name: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """An operation or a block, positional arguments before keywords."""

    function: Name
    args: tuple[Expr, ...] = ()
    keywords: tuple[Keyword, ...] = ()


Expr = Name | Number | Binary | Negative | Call


# ---- the model


@dataclass(frozen=True, slots=True)
class Input(Line):
    name: Name
    dtype: Name
    dims: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Init(Node):
    kind: Name
    argument: Expr | None = None


@dataclass(frozen=True, slots=True)
class Param(Line):
    """`decay` is `on` or `off`, where it is written."""

    name: Name
    dims: tuple[Expr, ...]
    init: Init
    decay: Name | None = None


@dataclass(frozen=True, slots=True)
class Assign(Line):
    targets: tuple[Name, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Repeat(Line):
    count: Expr
    name: Name
    body: Body[Statement]


@dataclass(frozen=True, slots=True)
class Loss(Line):
    value: Expr


@dataclass(frozen=True, slots=True)
class Return(Line):
    values: tuple[Expr, ...]


Statement = Input | Param | Assign | Repeat | Loss | Return


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    name: Name
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Model(Line):
    name: Name
    parameters: tuple[Parameter, ...]
    body: Body[Statement]


@dataclass(frozen=True, slots=True)
class Block(Line):
    name: Name
    parameters: tuple[Parameter, ...]
    body: Body[Statement]


# ---- the wafer


@dataclass(frozen=True, slots=True)
class Torus(Node):
    """`torus`, or `torus along rows`."""

    along: Name | None = None


@dataclass(frozen=True, slots=True)
class Mesh(Line):
    """`mesh 4 x 8`; with `planes` of so many rows and columns `mesh 2 x 4 x 8`."""

    rows: int
    columns: int
    torus: Torus | None = None
    planes: int | None = None

    @property
    def extents(self) -> tuple[int, ...]:
        """Rows and columns, behind the planes if there are any."""
        size = self.rows, self.columns
        return size if self.planes is None else (self.planes, *size)


@dataclass(frozen=True, slots=True)
class Field(Line):
    """A field of `die` or `link`, such as `hbm 72 GB at 1 TB/s`; `circuits 2 of 4` has an `of`."""

    name: Name
    value: Quantity
    rate: Quantity | None = None
    of: Number | None = None


@dataclass(frozen=True, slots=True)
class Fields(Line):
    """`die { ... }` or `link { ... }`; `kind` is the first word."""

    kind: str
    body: Body[Field]


@dataclass(frozen=True, slots=True)
class AllToAll(Line):
    """`dies 8 all to all`, or `dies 8 all to all through switch { capacity 3.6 TB/s }`."""

    dies: Number
    switch: Fields | None = None


@dataclass(frozen=True, slots=True)
class Coord(Node):
    """(row, column), or (plane, row, column)."""

    row: int
    column: int
    plane: int | None = None

    @property
    def place(self) -> tuple[int, ...]:
        """Row and column, behind the plane if there is one."""
        place = self.row, self.column
        return place if self.plane is None else (self.plane, *place)

    @staticmethod
    def at(numbers: Sequence[int], span: Span) -> Coord:
        """The coordinate of two or three numbers."""
        *plane, row, column = numbers
        return Coord(row, column, plane[0] if plane else None, span=span)


@dataclass(frozen=True, slots=True)
class DeadDie(Line):
    die: Coord


@dataclass(frozen=True, slots=True)
class DeadLink(Line):
    a: Coord
    b: Coord


@dataclass(frozen=True, slots=True)
class DieClass(Line):
    """`die (0, 0)..(0, 7) { peak 75 % }`: how one die, or those from a corner to another, differ from `die`."""

    first: Coord
    last: Coord
    fields: Fields


WaferEntry = Mesh | AllToAll | Fields | DieClass | DeadDie | DeadLink


@dataclass(frozen=True, slots=True)
class Wafers(Line):
    """`wafers 2 x 2 of temp`, or with a `torus`."""

    rows: int
    columns: int
    wafer: Name
    torus: Torus | None = None


@dataclass(frozen=True, slots=True)
class Ports(Line):
    """`ports 0, 3`: places along an edge; or a word for them, `corners` or `all`."""

    word: Name | None
    places: tuple[Number, ...] = ()


@dataclass(frozen=True, slots=True)
class Network(Line):
    """`joined through switch { ... }`, `through rails { ... }`, or `through leaves of 2 { ... }`."""

    word: Name
    of: Number | None
    fields: Fields


SystemEntry = Wafers | Fields | Network | Ports | DeadDie | DeadLink


@dataclass(frozen=True, slots=True)
class System(Line):
    name: Name
    body: Body[SystemEntry]


@dataclass(frozen=True, slots=True)
class Wafer(Line):
    """`body` is missing only where a preset is taken as it is."""

    name: Name
    preset: Text | None
    body: Body[WaferEntry] | None


# ---- training


@dataclass(frozen=True, slots=True)
class LrSchedule(Node):
    """The schedule of the learning rate: `warmup(...)`, `cosine(...)`, or both."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Role(Node):
    role: Name
    dtype: Name


@dataclass(frozen=True, slots=True)
class DTypes(Node):
    roles: tuple[Role, ...]


@dataclass(frozen=True, slots=True)
class Axis(Node):
    name: Name
    degree: Number


@dataclass(frozen=True, slots=True)
class Pin(Node):
    """An axis or a setting that a search does not vary."""

    name: Name
    value: Number | Name


@dataclass(frozen=True, slots=True)
class Strategy(Node):
    """The degrees of `parallel`; none at all is `parallel auto`, which may have pins."""

    axes: tuple[Axis, ...] = ()
    pins: tuple[Pin, ...] = ()

    @property
    def is_auto(self) -> bool:
        return not self.axes


@dataclass(frozen=True, slots=True)
class Stages(Node):
    """The layers of each pipeline stage; none at all is `stages auto`."""

    layers: tuple[Number, ...] = ()


SettingValue = Number | Quantity | Text | Name | Call | LrSchedule | DTypes | Strategy | Stages


@dataclass(frozen=True, slots=True)
class Setting(Line):
    """One line of `train`; the key decides the type of the value, as the grammar says."""

    key: str
    value: SettingValue


@dataclass(frozen=True, slots=True)
class Rate(Line):
    """A number of a group: `lr 1e-5`, `lr x 0.1`, `decay 0` or `decay off`; `times`: a multiple of the optimizer's."""

    name: Name
    value: Number | Name
    times: bool = False


@dataclass(frozen=True, slots=True)
class Group(Line):
    """`group "pattern" { ... }`: numbers of the optimizer for the parameters whose names fit."""

    pattern: Text
    body: Body[Rate]


@dataclass(frozen=True, slots=True)
class Train(Line):
    model: Name
    wafer: Name
    body: Body[Setting | Group]

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(s for s in self.body.lines if isinstance(s, Setting))

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple(s for s in self.body.lines if isinstance(s, Group))


Item = Wafer | System | Model | Block | Train


@dataclass(frozen=True, slots=True)
class File(Node):
    """A whole file; `tail` are the comments behind its last item."""

    items: tuple[Item, ...] = ()
    tail: tuple[str, ...] = ()
