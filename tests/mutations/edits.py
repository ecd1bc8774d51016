"""Mistakes in the text of a module: printed after some pass, changed in one place, parsed and compiled on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.mutations.harness import Base, Setting, Verdict, base, noticed, recompiled
from wscc.diagnostics import CompileError, Source
from wscc.ir.module import Module, calls
from wscc.ir.parse import parse
from wscc.ir.print import to_text


@dataclass(frozen=True, slots=True)
class Edit:
    """In `part` (the beginning of its first line: `proc @f`, `step`, or nothing for all) of the module after
    the pass `after`, the pattern `find` becomes `put`: where it first matches, or with `every` everywhere.

    `caught` is the check that notices, with `words` of what it says; `nothing`: the change is harmless, and
    all results keep their bits.
    """

    mistake: str
    setting: Setting
    after: str
    part: str
    find: str
    put: str
    caught: str = "equality"
    words: str = ""
    every: bool = False

    def __str__(self) -> str:
        return f"{self.after}: {self.mistake}"


def outcome(edit: Edit) -> Verdict:
    """What is noticed of the mistake."""
    b = base(edit.setting)
    try:
        module = edited(b, edit)
    except CompileError as error:
        return noticed(error)
    return recompiled(b, edit.after, module)


def edited(b: Base, edit: Edit) -> Module:
    """The module with the mistake in it, without procedures that nothing calls any more."""
    # The printer breaks long statements after commas.
    text = re.sub(r",\n\s+", ", ", to_text(b.modules[edit.after]))
    start = re.search("^" + re.escape(edit.part), text, re.MULTILINE)
    assert start, f"there is no `{edit.part}`"
    first = start.start()
    last = text.index("\n}", first) if edit.part else len(text)
    changed, count = re.subn(edit.find, edit.put, text[first:last], count=0 if edit.every else 1)
    assert count, f"`{edit.find}` is not in `{edit.part}`"
    module = parse(Source("edited.wir", text[:first] + changed + text[last:]))
    called = {call.procedure for call, _ in calls(module.step)}
    return module.with_(procedures=tuple(p for p in module.procedures if p.name in called))
