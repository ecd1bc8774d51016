"""Writes docs/reference/ and the table of imports in docs/architecture.md, from the code that they describe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tests.support.json_outputs import EMPTY, seen_fields
from tests.support.paths import ROOT
from tests.test_architecture import MAY, TOP
from wscc.cli.json_fields import FIELDS
from wscc.diagnostics import Code
from wscc.diagnostics.codes import CODES
from wscc.ir import forms
from wscc.ir.ops import OPS, RESHARDS, OpDef
from wscc.ir.streams import instructions
from wscc.ir.streams.instruction_def import InstructionDef
from wscc.passes.base import Pass, options_of
from wscc.passes.registry import PASSES, default_passes

REFERENCE: Final = ROOT / "docs" / "reference"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
_NOTE: Final = "Made by `make bless` from the code; do not edit it here.\n"
_TABLE_OF_IMPORTS: Final = re.compile(r"(?<=<!-- made by `make bless` -->\n).*?(?=<!-- end -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Every page that is made from code, with what it should say."""
    architecture = ARCHITECTURE.read_text(encoding="utf-8")
    return {
        REFERENCE / "passes.md": passes_page(),
        REFERENCE / "ops.md": ops_page(),
        REFERENCE / "instructions.md": instructions_page(),
        REFERENCE / "codes.md": codes_page(),
        REFERENCE / "json.md": json_page(),
        ARCHITECTURE: _TABLE_OF_IMPORTS.sub(lambda _: imports_table(), architecture),
    }


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A table of Markdown; bars inside a cell are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# ---- passes


def passes_page() -> str:
    head = f"# Passes\n\n{_NOTE}\nIn the order in which they run. [How to add one](../add-a-pass.md).\n"
    return head + "".join(f"\n## {name}\n\n{_pass(cls)}" for name, cls in PASSES.items())


def _pass(cls: type[Pass]) -> str:
    parts = [_paragraph(p) for p in (inspect.getdoc(cls) or "").split("\n\n")]
    rows = [
        ("requires", _words(cls.requires)),
        ("provides", _words(cls.provides)),
        ("runs at", ", ".join(f"`-O{n}`" for n in range(4) if _runs(cls, n)) or "only when asked for"),
        *((f"option `{f.name}`", f"{code(str(f.type))}, `{f.default}` by default") for f in options_of(cls)),
    ]
    return "\n\n".join(parts) + "\n\n" + table(("", ""), iter(rows))


def _paragraph(text: str) -> str:
    """Prose as it is; what is laid out in lines, such as Before and After, as a block."""
    return f"```text\n{text}\n```" if re.search(r"^(Before:| {2,}\S)", text, re.MULTILINE) else text


def _words(facts: frozenset[Any]) -> str:
    return ", ".join(sorted(map(str, facts))) or "nothing"


def _runs(cls: type[Pass], level: int) -> bool:
    return any(isinstance(p, cls) for p in default_passes(level))


# ---- ops and instructions


def ops_page() -> str:
    listed = table(
        ("op", "index rule or form", "attributes", "further"),
        (
            (code(d.name), code(d.rule) if d.rule else d.form, _attributes(d), _further(d))
            for d in OPS.values()
        ),
    )
    return (
        f"# Ops\n\n{_NOTE}\nOps of the graph and sharded levels, one row of `wscc/ir/ops.py` each. "
        f"[How to add one](../add-an-op.md).\n\n{listed}\n## Index rules\n\n```text\n{inspect.getdoc(forms)}\n```\n\n"
        f"## Columns\n\n```text\n{inspect.getdoc(OpDef)}\n```\n\n"
        "## Reshards\n\nOps of the sharded level that change how a value is split over dies, and no number: "
        f"{', '.join(code(str(name)) for name in RESHARDS)}.\n"
    )


def _attributes(definition: OpDef) -> str:
    listed = ", ".join(f"`{name}` {kind.__name__}" for name, kind in definition.attrs.items())
    options = ", ".join(f"`{name}` {kind.__name__}" for name, kind in definition.options.items())
    return f"{listed} (and {options})" if options else listed


def _further(definition: OpDef) -> str:
    """The other fields of a row that are not as in most."""
    told = []
    for f in fields(OpDef):
        value = getattr(definition, f.name)
        if f.name not in ("name", "rule", "form", "attrs", "options") and value != f.default:
            told.append(f.name if value is True else f"{f.name} {value}")
    return ", ".join(told)


def _named(d: InstructionDef) -> str:
    return f"{d.attrs} ({d.options})" if d.options else d.attrs


def instructions_page() -> str:
    listed = table(
        ("instruction", "writes", "reads", "attributes", "meaning"),
        (
            (code(d.opcode), code(d.writes), code(d.reads), code(_named(d)), code(d.semantics))
            for d in instructions.INSTRUCTIONS.values()
        ),
    )
    about = "\n\n".join((inspect.getdoc(instructions) or "").split("\n\n")[1:])
    return f"# Instructions\n\n{_NOTE}\nWhat a die executes. {about}\n\n{listed}"


# ---- codes and fields


def codes_page() -> str:
    listed = table(
        ("code", "name", "what is wrong"),
        ((f"[{c}](#{str(c).lower()})", c.name.lower(), _first_sentence(CODES[c])) for c in Code),
    )
    return (
        f"# Error codes\n\n{_NOTE}\n`wscc explain CODE` prints these texts. A code is never used again for something "
        f"else.\n\n{listed}" + "".join(f"\n## {c}\n\n```text\n{CODES[c]}\n```\n" for c in Code)
    )


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()), maxsplit=1)[0]


def json_page() -> str:
    seen = seen_fields()
    parts = [
        f"# Fields of `--json`\n\n{_NOTE}\nEvery command prints one object with `--json`; one that fails prints "
        "`error` instead. `report.json` of an artifact is the object of `compile`. `a[].b` is `b` of each element "
        "of the list `a`; a key in angle brackets differs from program to program. Times are in seconds.\n"
    ]
    for command, meanings in FIELDS.items():
        title = "An error" if command == "error" else f"`wscc {command}`"
        rows = (
            (code(path), seen[command].get(path, "").replace(EMPTY, ""), meaning)
            for path, meaning in meanings.items()
        )
        parts.append(f"\n## {title}\n\n{table(('field', 'type', 'meaning'), rows)}")
    return "".join(parts)


# ---- imports


def imports_table() -> str:
    rows = [(code(part), _what_may_be_imported(part)) for part in MAY]
    return table(("part", "may import"), iter([*rows, (code("wscc/cli"), "everything")])) + (
        f"\nOnly {', '.join(map(code, sorted(TOP)))} see `passes` and `backends`.\n"
    )


def _what_may_be_imported(part: str) -> str:
    """The names, or an earlier part that may import most of them, and the others."""
    names = _imported(part)
    before = list(MAY)[: list(MAY).index(part)]
    most = max((p for p in before if _imported(p) <= names), key=lambda p: len(_imported(p)), default=part)
    if len(_imported(most)) < 4 or most == part:
        return ", ".join(map(code, sorted(names))) or "nothing"
    further = ", ".join(map(code, sorted(names - _imported(most))))
    return f"what {code(most)} may" + (f", and {further}" if further else "")


def _imported(part: str) -> set[str]:
    return MAY[part] - {Path(part).stem}
