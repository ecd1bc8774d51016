"""Own passes in the pipeline, and own ops in the language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

import numpy as np

from wscc.api.arguments import each, fields_of, refuse
from wscc.api.expressions import name as checked_name
from wscc.driver.own_op import OwnOp, enter, is_taken, names_of, remove
from wscc.driver.pipeline import Insertion
from wscc.driver.types import Pass
from wscc.frontend.builtins import FLAGS, INITS

Function = Callable[..., Any]
_own: dict[str, OwnOp] = {}


def insert(own: Pass, *, after: str) -> Insertion:
    """An own pass in its place: `compile(..., passes=[insert(MyPass(), after="place")])` runs it right after the pass
    `after`. Its module is verified like that of any other pass, and is in `Program.modules` under its name.

    Raises `UsageError` W006 for what is no pass; `compile` raises W006 for an unknown `after`, W603 for a name that a
    pass has already, W602 where the pass leaves an invalid module.
    """
    if not isinstance(own, Pass):
        refuse(
            f"`insert` takes a pass, not a {type(own).__name__}",
            "derive it from `wscc.Pass`, and give an instance",
        )
    if not isinstance(getattr(own, "name", None), str):
        refuse(
            f"the pass `{type(own).__name__}` has no name",
            'write `name: ClassVar[str] = "my_pass"` in its class',
        )
    if not isinstance(after, str):
        refuse(f"`after` is {after!r}, and must be the name of a pass")
    return Insertion(own, after)


def register_op(
    name: str, arguments: str | Sequence[str] = "x", *, forward: Function, backward: Function, reference: Function,
    reference_backward: Function, options: Mapping[str, float] | None = None, rows: bool = False,
) -> None:  # fmt: skip
    """Add an op to the language, to be called as `name(x)` in `.wsl` files and as `nn.call(name, x)` in Python.

    Its operands (`arguments`, `"x"` or `"a b"`) and its result are float arrays of one shape `[*]`; with `rows` the
    last dimension is never split, for functions of whole rows. `forward(*operands, **options)` returns the result,
    `backward(*operands, dy, **options)` the gradient of each operand: NumPy functions that dies run on their own parts.
    `reference` and `reference_backward` say the same once more for one device; write them from the definition, since
    `check` compares the two. `options` are numbers with their defaults, given by name in a call.

    Raises `UsageError` W006 for a name in use, for functions that are missing, shared with the reference, or of results
    that do not have the shape of the operands. Register before compiling and before running; workers inherit it.
    """
    words = (
        tuple(arguments.replace(",", " ").split())
        if isinstance(arguments, str)
        else each("arguments", arguments)
    )
    own = OwnOp(
        checked_name(name), tuple(map(checked_name, words)), forward, backward, reference, reference_backward,
        fields_of("options", options or {}), rows,
    )  # fmt: skip
    _check(own)
    _try(own)
    enter(own)
    _own[name] = own


def unregister_op(name: str) -> None:
    """Take an op that was registered out of the language. Raises `UsageError` W006 for any other."""
    if name not in _own:
        refuse(f"`{name}` is no op of your own", f"registered are {', '.join(_own) or 'none'}")
    remove(name)
    del _own[name]


@contextmanager
def registered_op(name: str, arguments: str | Sequence[str] = "x", **declaration: Any) -> Iterator[None]:
    """An op that is registered while a `with` lasts, with the arguments of `register_op`. Raises as that does."""
    register_op(name, arguments, **declaration)
    try:
        yield
    finally:
        unregister_op(name)


def _check(own: OwnOp) -> None:
    for word in names_of(own.name):
        if is_taken(word) or word in FLAGS or word in INITS:
            refuse(f"the name `{word}` is in use", "choose another name for the op")
    if not own.arguments or len({*own.arguments, *own.options}) < len(own.arguments) + len(own.options):
        refuse(f"`{own.name}` needs arguments and options with different names")
    functions = {
        "forward": own.forward, "backward": own.backward, "reference": own.reference,
        "reference_backward": own.reference_backward,
    }  # fmt: skip
    for key, function in functions.items():
        if not callable(function):
            refuse(f"`{key}` of `{own.name}` is no function")
    if own.forward is own.reference or own.backward is own.reference_backward:
        refuse(
            f"`{own.name}` has one function for dies and for the reference",
            "write it twice, so that mistakes show",
        )
    for key, value in own.options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            refuse(f"the option `{checked_name(key)}` of `{own.name}` is {value!r}, and must be a number")


def _try(own: OwnOp) -> None:
    """Call every function once, on arrays [3, 4]. Raises `UsageError` W006 for one that fails or has other shapes."""
    x = np.linspace(0.25, 1.75, 12).reshape(3, 4)
    operands = [x + i for i in range(len(own.arguments))]
    for key, function, results in (
        ("forward", own.forward, 1), ("reference", own.reference, 1), ("backward", own.backward, len(operands)),
        ("reference_backward", own.reference_backward, len(operands)),
    ):  # fmt: skip
        inputs = [*operands, x] if key.endswith("backward") else operands
        try:
            output = function(*(a.copy() for a in inputs), **own.options)
        except Exception as problem:
            refuse(f"`{key}` of `{own.name}` fails on arrays [3, 4]: {type(problem).__name__}: {problem}")
        parts = output if isinstance(output, tuple | list) else (output,)
        shapes = [np.shape(p) for p in parts]
        if shapes != [x.shape] * results:
            refuse(
                f"`{key}` of `{own.name}` gives shapes {[list(s) for s in shapes]} for operands [3, 4]",
                f"it must give {results} of the shape of its operands",
            )
