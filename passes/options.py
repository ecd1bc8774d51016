"""Parser of pass lists, `name{option=value ...}, ...`, as `wscc opt --passes` takes them.

The options of a pass are the fields of its dataclass, but for those that the pipeline sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from wscc.diagnostics import Code, CompileError, Source, fail
from wscc.diagnostics.spelling import did_you_mean
from wscc.passes.base import Pass, options_of
from wscc.passes.registry import PASSES

_ITEM = re.compile(r"\s*(\w+)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")


def parse_passes(text: str, read: Callable[[str], Source] | None = None) -> list[Pass]:
    """The passes that `text` lists, with their options.

    `read` loads the file that an option names; its exceptions pass through. Raises W006 for text that is not a list,
    an unknown pass or option, or a value of another type.
    """
    passes: list[Pass] = []
    offset = 0
    while text[offset:].strip():
        item = _ITEM.match(text, offset)
        if item is None:
            raise fail(
                Code.OPTION, f"`{text[offset:]}` is not a list of passes", help="write `partition,fuse,place`"
            )
        passes.append(_build(item[1], item[2] or "", read))
        offset = item.end()
    return passes


def _build(name: str, options: str, read: Callable[[str], Source] | None) -> Pass:
    cls = PASSES.get(name)
    if cls is None:
        raise _unknown("pass", name, list(PASSES))
    option_fields = {f.name: f for f in options_of(cls)}
    values: dict[str, object] = {}
    for item in options.split():
        key, _, value = item.partition("=")
        if key not in option_fields:
            raise _unknown(f"option of `{name}`", key, list(option_fields))
        kind = str(option_fields[key].type)
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
    expected = "true or false" if kind == "bool" else kind
    raise fail(Code.OPTION, f"`{key}` of `{name}` takes {expected}, not `{text}`")


def _unknown(category: str, name: str, alternatives: list[str]) -> CompileError:
    hint = did_you_mean(name, alternatives, f"known: {', '.join(alternatives) or 'none'}")
    return fail(Code.OPTION, f"unknown {category} `{name}`", help=hint)
