"""`name{option=value ...}` lists, as `wscc opt --passes` takes them; options are the fields of the passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches

from wscc.diagnostics import Code, CompileError, Source, fail
from wscc.passes import PASSES, Pass

_ITEM = re.compile(r"\s*(\w+)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")


def parse_passes(text: str, read: Callable[[str], Source] | None = None) -> list[Pass]:
    """The passes of a list; W006 for an unknown pass or option, or a value of another type. `read` gives the files
    that options name, and raises what it likes for those that it cannot give."""
    passes: list[Pass] = []
    at = 0
    while text[at:].strip():
        found = _ITEM.match(text, at)
        if found is None:
            raise fail(
                Code.OPTION, f"`{text[at:]}` is not a list of passes", help="write `partition,fuse,place`"
            )
        passes.append(_made(found[1], found[2] or "", read))
        at = found.end()
    return passes


def _made(name: str, options: str, read: Callable[[str], Source] | None) -> Pass:
    cls = PASSES.get(name)
    if cls is None:
        raise _unknown("pass", name, list(PASSES))
    known = {f.name: f for f in fields(cls)}
    values: dict[str, object] = {}
    for item in options.split():
        key, _, value = item.partition("=")
        if key not in known:
            raise _unknown(f"option of `{name}`", key, list(known))
        kind = str(known[key].type)
        is_file = kind.startswith(Source.__name__)
        values[key] = read(value) if is_file and read else _value(name, key, kind, value)
    return cls(**values)


def _value(name: str, key: str, kind: str, text: str) -> object:
    if kind == "bool" and text in ("true", "false"):
        return text == "true"
    if kind == "int" and re.fullmatch(r"-?\d{1,9}", text):
        return int(text)
    if kind == "str":
        return text
    wanted = "true or false" if kind == "bool" else kind
    raise fail(Code.OPTION, f"`{key}` of `{name}` takes {wanted}, not `{text}`")


def _unknown(what: str, name: str, known: list[str]) -> CompileError:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known) or 'none'}"
    return fail(Code.OPTION, f"unknown {what} `{name}`", help=hint)
