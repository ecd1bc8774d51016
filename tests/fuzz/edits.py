"""Random edits of the files of an artifact, after which all hashes are right again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from random import Random
from typing import Any

from wscc.backends.artifact.files import MANIFEST
from wscc.backends.artifact.json import canonical

Files = dict[str, bytes]

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 8, 64, 255, 4096, -8, 2**31 - 1, 2**31, 2**32, 2**48, 2**53, 2**62, 2**63 - 1, 2**63,
    -(2**63), 10**30, 10**400, 0.0, -0.5, 1.5, 1e-300, 1e300,
)  # fmt: skip
TEXTS = (
    "",
    "tp",
    "xx",
    "loss",
    "f32",
    "param",
    "a" * 5000,
    "\u00fc\u2028\U0001f600",
    "../../etc",
    "\x00",
    "%d",
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"a": 1}, [0, 0], "text", *NUMBERS[:4])
# The form of a number in `.wsa` and `.wir`.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w.]*")


def edited(files: Files, rng: Random) -> tuple[Files, list[str]]:
    """The files after one to three edits, with right hashes, and the name of the file of each edit."""
    out, names = dict(files), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(out))
        if rng.random() < 0.3:
            name = MANIFEST
        names.append(name)
        out[name] = _edit(name, out[name], rng)
    return with_hashes(out), names


def with_hashes(files: Files) -> Files:
    """The files with the hashes that fit, if the manifest is JSON."""
    try:
        manifest = json.loads(files[MANIFEST])
        listed = manifest["files"]
        for name in listed:
            if name in files:
                listed[name] = sha256(files[name]).hexdigest()
        manifest.pop("hash", None)
        return files | {MANIFEST: canonical(manifest | {"hash": sha256(canonical(manifest)).hexdigest()})}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return files


def _edit(name: str, content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.04:
        return rng.choice(_RAW)(content, rng)
    if name.endswith(".json"):
        return _json(name, content, rng)
    if name.endswith(".npy"):
        return _npy(content, rng)
    if name.endswith(".bin"):
        return rng.choice(_RAW)(content, rng)
    return _text(content, rng)


# ---- bytes


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _flip(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]


_RAW: tuple[Callable[[bytes, Random], bytes], ...] = (
    _cut,
    _flip,
    lambda c, r: b"",
    lambda c, r: c + bytes(r.randrange(1, 9)),
    lambda c, r: c + c,
    lambda c, r: b"[" * 5000,
    lambda c, r: b'{"a": ' * 900 + b"1" + b"}" * 900,
)


# ---- JSON


def _json(name: str, content: bytes, rng: Random) -> bytes:
    try:
        value = json.loads(content)
        places = list(_places(value))
    except (ValueError, RecursionError):
        return _flip(content, rng)
    if not places:
        return content
    # Lists of equal parts would drown the fields that are there once.
    kinds: dict[str, list[tuple[Any, Any]]] = {}
    for kind, place in places:
        kinds.setdefault(kind, []).append(place)
    container, key = rng.choice(kinds[rng.choice(sorted(kinds))])
    _change(container, key, rng)
    if rng.random() < 0.02:  # what a reader of JSON may accept, and its writer does not write
        text = json.dumps(value)
        return rng.choice((text.replace("1", "NaN", 1), text.replace("{", '{"a": 1, "a": 2, ', 1))).encode()
    if name == MANIFEST:
        try:
            return canonical(value)
        except (ValueError, TypeError, RecursionError):
            return json.dumps(value).encode()
    return json.dumps(value).encode()


def _places(value: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """(kind of field, (object or list, key or index)) of every value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        kind = f"{path}.{key}" if isinstance(value, dict) else f"{path}[]"
        yield kind, (value, key)
        yield from _places(inner, kind)


def _change(container: Any, key: Any, rng: Random) -> None:
    value = container[key]
    match rng.randrange(10):
        case 0:
            del container[key]
        case 1:
            container[key] = rng.choice(OTHERS)
        case 2 if isinstance(container, list):
            container.insert(rng.randrange(len(container) + 1), value)
        case 2:
            container["surplus"] = value
        case 3:
            other = rng.choice([*container] if isinstance(container, dict) else range(len(container)))
            container[key], container[other] = container[other], container[key]
        case 4 if isinstance(value, list) and value:
            container[key] = value[: rng.randrange(len(value))]
        case 4 if isinstance(value, list):
            container[key] = [rng.choice(NUMBERS)]
        case 5 if isinstance(value, list):
            container[key] = value * rng.choice((2, 3, 50))
        case _ if isinstance(value, int | float) and not isinstance(value, bool):
            container[key] = _number(value, rng)
        case _ if isinstance(value, str):
            container[key] = rng.choice(TEXTS)
        case _:
            container[key] = rng.choice(OTHERS)


def _number(n: float, rng: Random) -> Any:
    near = (n + 1, n - 1, n * 2, n // 2, -n, n + 8, n * 1000)
    return rng.choice((rng.choice(NUMBERS), rng.choice(near)))


# ---- arrays


def _npy(content: bytes, rng: Random) -> bytes:
    start = 10 + int.from_bytes(content[8:10], "little")
    head, body = content[:start], bytearray(content[start:])
    if rng.random() < 0.3 or len(body) < 8:
        old, new = rng.choice(
            (("<i8", "<f8"), ("<i8", "|O"), ("<i8", "<i4"), ("False", "True"), ("(", "(99999999999, "), ("(", "(-1, "),
             ("shape", "shade"), ("}", ""), ("<i8", "<i88"))
        )  # fmt: skip
        text = head.decode("latin-1").replace(old, new, 1)
        return text.encode("latin-1") + bytes(body)
    if rng.random() < 0.1:
        return head + bytes(body[: rng.randrange(len(body))])
    at = 8 * rng.randrange(len(body) // 8)
    old_value = int.from_bytes(body[at : at + 8], "little", signed=True)
    value = int(min(max(_number(old_value, rng), -(2**63)), 2**63 - 1))
    body[at : at + 8] = value.to_bytes(8, "little", signed=True)
    return head + bytes(body)


# ---- programs and graphs


def _text(content: bytes, rng: Random) -> bytes:
    lines = content.decode("utf-8", "replace").split("\n")
    # Short texts of the graph and long ones of programs: every kind of line has its turn.
    kinds: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        kinds.setdefault((line.split() or [""])[0][:12], []).append(n)
    at = rng.choice(kinds[rng.choice(sorted(kinds))])
    match rng.randrange(12):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = _swapped(lines[at], rng.choice(lines), _WORD, rng)
        case 4:
            lines[at:at] = [
                f"loop l{i} {rng.choice(NUMBERS[:12])} {{" for i in range(rng.choice((1, 20, 2000)))
            ]
        case 5:
            lines[at] += rng.choice((" {", " }", "\u00fc", " accumulate=true", "[", '"', " # x"))
        case 6:
            lines[at] = _swapped(lines[at], rng.choice(lines), _NUMBER, rng)
        case _:
            numbers = list(_NUMBER.finditer(lines[at]))
            if numbers:
                m = rng.choice(numbers)
                old = float(m[0]) if "." in m[0] or "e" in m[0] else int(m[0])
                lines[at] = lines[at][: m.start()] + str(_number(old, rng)) + lines[at][m.end() :]
    return "\n".join(lines).encode("utf-8", "replace")


def _swapped(line: str, other: str, kind: re.Pattern[str], rng: Random) -> str:
    """The line with a word of another line in place of one of its own."""
    own, words = list(kind.finditer(line)), kind.findall(other)
    if not own or not words:
        return line
    m = rng.choice(own)
    return line[: m.start()] + rng.choice(words) + line[m.end() :]


def without(files: Files, name: str) -> Files:
    """The files without one, which the manifest no longer lists."""
    manifest = json.loads(files[MANIFEST])
    manifest["files"].pop(name, None)
    rest = {n: c for n, c in files.items() if n != name}
    return with_hashes(rest | {MANIFEST: canonical(manifest)})
