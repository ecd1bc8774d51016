"""wscc: a compiler toolchain for training transformers on wafer-scale chips.

    import wscc
    program = wscc.compile("model.wsl", {"model.layers": 2}, parallel="dp=2,tp=2")
    print(program.run(steps=10).losses, program.simulate().seconds)

Everything that a person imports is listed in `wscc.api` and imported when it is first asked for: every module of the
package runs this file, and the command line should start fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wscc.api import *  # noqa: F403


class _Package(ModuleType):
    """The package under whose name `search` the function stays: importing the part `wscc.search` would put the module
    in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "search" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*import_module("wscc.api").__all__, "__version__"]
    if name.startswith("_"):
        raise AttributeError(f"module `wscc` has no attribute `{name}`")
    api = import_module("wscc.api")
    if name not in api.__all__:
        raise AttributeError(f"module `wscc` has no attribute `{name}`")
    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*import_module("wscc.api").__all__, "__version__"])
