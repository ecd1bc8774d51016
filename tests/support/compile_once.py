"""Programs that are compiled once in a process, for tests about what comes before or after compiling.

A test that breaks the compiler on purpose, or looks at whether it does the same twice, calls the compiler itself.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from wscc.driver import compile as driver
from wscc.driver.compile import Compiled
from wscc.driver.pipeline import Observer
from wscc.ir.module import Module
from wscc.ir.text.print import to_text
from wscc.passes.choices import DEFAULT, Choices

_compile_graph = driver.compile_graph
_PROGRAMS: dict[Hashable, Compiled] = {}


def compile_graph(
    graph: Module, level: int = 2, *, choices: Choices = DEFAULT, data: bytes | None = None, file: str = "",
    observe: Observer = lambda name, module: None,
) -> Compiled:  # fmt: skip
    """What `wscc.driver.compile.compile_graph` returns, shared with all that ask for it again; refusals are not kept.

    A graph of the same text is the same program: the artifact holds nothing else of the graph. `observe` sees the
    modules again.
    """
    key = (to_text(graph), level, choices, data, file)
    found = _PROGRAMS.get(key)
    if found is None:
        found = _compile_graph(graph, level, choices=choices, data=data, file=file, observe=observe)
        _PROGRAMS[key] = found
    else:
        for name, module in found.modules.items():
            observe(name, module)
    return found


@pytest.fixture
def programs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile each program once, whoever asks `compile_file`: the command line, or the test."""
    monkeypatch.setattr(driver, "compile_graph", compile_graph)
