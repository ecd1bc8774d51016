"""What tests compile that are about what comes after it: programs without a report, and programs shared by tests.

A test that breaks the compiler on purpose, or looks at whether it does the same twice, shares nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from wscc.backends.artifact.files import Artifact
from wscc.driver import compile as driver
from wscc.driver.compile import Compiled, load, program_of
from wscc.driver.pipeline import Insertion, Observer
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.host.data_file import read_data
from wscc.ir.module import Module
from wscc.ir.text.print import to_text
from wscc.passes.choices import DEFAULT, Choices

_compile_graph = driver.compile_graph
_PROGRAMS: dict[Hashable, Compiled] = {}
_MOST = 32  # programs kept; those that were made first go first


def artifact_of(graph: Module, level: int = 2, *, choices: Choices = DEFAULT) -> Artifact:
    """The artifact of a forward module, without data and report."""
    return program_of(graph, level, choices=choices)[0]


def artifact_of_file(path: Path, overrides: Overrides = NO_OVERRIDES, level: int = 2) -> Artifact:
    """The artifact of a `.wsl` file with its data, without a report."""
    graph = load(str(path), overrides)
    data = read_data(path.parent / graph.train.data).content if graph.train.data else None
    return replace(artifact_of(graph, level), data=data)


def compile_graph(
    graph: Module, level: int = 2, *, choices: Choices = DEFAULT, data: bytes | None = None, file: str = "",
    observe: Observer = lambda name, module: None, insertions: Sequence[Insertion] = (),
) -> Compiled:  # fmt: skip
    """What `wscc.driver.compile.compile_graph` returns, shared with all that ask for it again; refusals are not kept.

    A graph of the same text is the same program: the artifact holds nothing else of the graph. `observe` sees the
    modules again.
    """
    key = (to_text(graph), level, choices, data, file, tuple(insertions))
    found = _PROGRAMS.get(key)
    if found is None:
        found = _compile_graph(
            graph, level, choices=choices, data=data, file=file, observe=observe, insertions=insertions
        )
        _PROGRAMS[key] = found
        if len(_PROGRAMS) > _MOST:
            del _PROGRAMS[next(iter(_PROGRAMS))]
    else:
        for name, module in found.modules.items():
            observe(name, module)
    return found


@pytest.fixture
def programs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile each program once, whoever asks `compile_file`: the command line, or the test."""
    monkeypatch.setattr(driver, "compile_graph", compile_graph)
