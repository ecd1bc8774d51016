"""Textual IR: what is printed reads back as the same module, and every mistake of a text is reported in place."""

from __future__ import annotations

from generate import modules
from hypothesis import given, settings
from wscc.diagnostics import Source
from wscc.ir.module import Level, Module
from wscc.ir.parse import parse
from wscc.ir.print import to_text
from wscc.ir.verify import verify


def read(text: str) -> Module:
    return parse(Source("case.wir", text))


@settings(max_examples=60, deadline=None)
@given(modules())
def test_graph_modules_read_back(m: Module) -> None:
    text = to_text(m)
    assert [d.message for d in verify(m)] == []
    assert read(text) == m
    assert to_text(read(text)) == text


@settings(max_examples=60, deadline=None)
@given(modules(Level.SHARDED))
def test_sharded_modules_read_back(m: Module) -> None:
    assert [d.message for d in verify(m)] == []
    assert read(to_text(m)) == m
