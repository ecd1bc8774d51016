"""Files of users, read and written: only regular files are read, of a size that their kind may have.

No other part of the product opens a file that a user names (`tests/test_architecture.py`):

    content = read_bytes(path, DATA)            bytes, at most `DATA.limit` of them
    source = read_source(path, WSL)             UTF-8 text, as a `Source`
    safe_open(regular_file(path, WEIGHTS))      for a library that opens files itself
    array = parse_npy(content)                  a `.npy` in memory, whose header is checked before anything is allocated
    value = parse_json(text)                    strict JSON: no name twice, no NaN, no endless number

Nor does any other write one, or JSON that others read:

    write_file(path, [text])                    replaces a file by a whole one, or leaves it
    replace_file(path, write)                   likewise, for a library that writes files itself
    text = to_json(value)                       without NaN and infinities
"""

from __future__ import annotations

from wscc.files.json import JsonMistake, parse_json
from wscc.files.kinds import FileKind
from wscc.files.npy import NpyMistake, parse_npy
from wscc.files.read import read_bytes, read_source, regular_file
from wscc.files.to_json import to_json
from wscc.files.write import replace_file, write_file

__all__ = [
    "FileKind",
    "JsonMistake",
    "NpyMistake",
    "parse_json",
    "parse_npy",
    "read_bytes",
    "read_source",
    "regular_file",
    "replace_file",
    "to_json",
    "write_file",
]
