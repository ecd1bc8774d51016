"""wscc: a compiler toolchain for training transformers on wafer-scale chips.

    import wscc
    program = wscc.compile("model.wsl", {"model.layers": 2}, parallel="dp=2,tp=2")
    print(program.run(steps=10).losses, program.simulate().seconds)

Everything that a person imports lies in `wscc.api.names` and is imported when first asked for: every module of the
package runs this file, and the command line should start fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wscc.api.names import (
        Block,
        CompileError,
        Expression,
        Fact,
        Model,
        Module,
        Pass,
        PassModule,
        Picture,
        Placement,
        Program,
        Ranked,
        Ranking,
        Refusal,
        Run,
        Simulation,
        Train,
        UsageError,
        Verification,
        Wafer,
        adamw,
        compile,
        cosine,
        insert,
        load,
        nn,
        normal,
        register_op,
        registered_op,
        search,
        sgd,
        unregister_op,
        warmup,
    )  # fmt: skip


class _Package(ModuleType):
    """The package under whose name `search` the function stays: importing the part `wscc.search` would put the module
    in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "search" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


# Written out, since asking `wscc.api.names` for them would import it for `from wscc import grammar` too.
__all__ = [
    "Block", "CompileError", "Expression", "Fact", "Model", "Module", "Pass", "PassModule", "Picture",
    "Placement", "Program", "Ranked", "Ranking", "Refusal", "Run", "Simulation", "Train", "UsageError",
    "Verification", "Wafer", "__version__", "adamw", "compile", "cosine", "insert", "load", "nn", "normal",
    "register_op", "registered_op", "search", "sgd", "unregister_op", "warmup",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__" or name not in __all__:
        raise AttributeError(f"module `wscc` has no attribute `{name}`")
    return getattr(import_module("wscc.api.names"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
