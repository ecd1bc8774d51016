"""The syntax tree of a `.wsl` file: frozen data, compared by what is written (spans are not identity).

Comments are part of the tree (`Trivia`, `Body.opening`, `Body.tail`), so that printing never loses one.
Invariant, with `fmt`: `parse(fmt(tree)) == tree`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

from wscc.diagnostics import NO_SPAN, Span

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Trivia:
    """Comments of a node (`#` included): `before` on the lines above, `after` behind it on its line. `blank`: a blank
    line separates it from the sibling before."""

    before: tuple[str, ...] = ()
    after: str = ""
    blank: bool = False


NO_TRIVIA = Trivia()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the tree, with its place in the text."""

    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Node):
    """A node that the printer gives a line of its own."""

    trivia: Trivia = NO_TRIVIA


@dataclass(frozen=True, slots=True)
class Body(Node, Generic[T]):
    """The lines between `{` and `}`; `opening` is a comment behind `{`, `tail` are those before `}`."""

    lines: tuple[T, ...] = ()
    opening: str = ""
    tail: tuple[str, ...] = ()


# ---- words


@dataclass(frozen=True, slots=True)
class Name(Node):
    id: str


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A literal, exact, in the user's spelling."""

    text: str

    @property
    def value(self) -> Fraction:
        return Fraction(self.text)


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A string literal, without its quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A number and its unit as written; no unit is the empty string. `10 %` and `32 rows` are quantities, too."""

    number: Number
    unit: str = ""


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
    rows: int
    columns: int
    torus: Torus | None = None


@dataclass(frozen=True, slots=True)
class Field(Line):
    """A field of `die` or `link`, such as `hbm 72 GB at 1 TB/s`."""

    name: Name
    value: Quantity
    rate: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Fields(Line):
    """`die { ... }` or `link { ... }`; `kind` is the first word."""

    kind: str
    body: Body[Field]


@dataclass(frozen=True, slots=True)
class Coord(Node):
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class DeadDie(Line):
    die: Coord


@dataclass(frozen=True, slots=True)
class DeadLink(Line):
    a: Coord
    b: Coord


WaferEntry = Mesh | Fields | DeadDie | DeadLink


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


SystemEntry = Wafers | Fields | Ports | DeadDie | DeadLink


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
