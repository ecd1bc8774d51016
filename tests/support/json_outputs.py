"""Runs every command with `--json` on small programs, to see which fields it prints and of what type."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from safetensors.numpy import save_file

from tests.oracles.huggingface import random_checkpoint
from tests.support.huggingface_configs import GPT2
from tests.support.paths import CASES, SAMPLES
from wscc.backends.artifact.files import write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.cli import main
from wscc.cli.json_fields import FIELDS

EMPTY: Final = "empty"
_TYPES: Final = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}

# Run in this order in one folder with small models (one with slow links, so that some are hot, and a slow die), a
# config and flows.
# Together they print every field: also those of clusters that may start apart, and of a program that is broken.
COMMANDS: Final = """
compile model.wsl -o out --parallel tp=2,pp=2 --set "train.validation=1 rows"
compile model.wsl -o searched -O3 --parallel auto,recompute=none,zero=0,microbatch=1
compile model.wsl --emit graph --parallel tp=2
compile tray.wsl --stagger --parallel dp=2,tp=2
compile model.wsl --parallel tp=3 --set "wafer.link.circuits=2 of 4"
compile view.wsl --parallel tp=2
run out --steps 1 --check --data text
verify out
verify broken
simulate tray.wsl --stagger --parallel dp=2,tp=2
monitor out --metric link_util --group 1x2
simulate slow.wsl --parallel tp=4 --set "wafer.link.circuits=2 of 4"
monitor slow.wsl --metric link_util --parallel tp=4
monitor out --metric die_util --group 1x2
monitor out --metric memory
draw out
search model.wsl --jobs 1 --pin dp=1 --budget 1 --pin microbatch=1 --pin recompute=none --pin zero=0
search model.wsl --jobs 1 --validate 4
faults model.wsl --parallel tp=4 --rate 75% --seeds 1
call-order model.wsl --parallel pp=2
import config.json
import small.json --seq 8 -o small.wsl
run moe.wsl --steps 1 --set model.layers=1 --set model.seq=8 --set train.batch=4 --set train.microbatch=4
run small.wsl --steps 1 --weights small.safetensors --set train.batch=1 --set train.microbatch=1 --parallel dp=1
route --mesh 2x2 --flows flows.txt
collective all_reduce --mesh 2x2 --bytes 4KiB --check
collective all_gather --mesh 1x3 --bytes 4KiB --sweep
collective all_reduce --mesh 2x2 --wafers 1x2 --bytes 64KiB
opt out/graph.wir
passes place
explain W201
fmt model.wsl
"""

Path_ = tuple[str, ...]


@cache
def seen_fields() -> dict[str, dict[str, str]]:
    """By command, the types of the fields of `FIELDS` that it prints; others go by their own path."""
    seen: dict[str, dict[str, set[str]]] = {command: {} for command in FIELDS}
    for command, value in outputs():
        named = "error" if "error" in value else command
        for path, kind in leaves(value, ()):
            fields = [k for k in FIELDS[named] if _fits(k, path, kind)] or [".".join(path)]
            for field in fields:
                seen[named].setdefault(field, set()).add(kind)
    return {c: {path: _in_words(types) for path, types in fields.items()} for c, fields in seen.items()}


def _in_words(types: set[str]) -> str:
    """`number or null`; where nothing but an empty list or object was seen, that."""
    return " or ".join(sorted(types - {EMPTY}, key=lambda t: (t == "null", t))) or EMPTY


def outputs() -> Iterator[tuple[str, dict[str, object]]]:
    """What each of `COMMANDS` prints; an error is an object, too."""
    with TemporaryDirectory() as name, chdir(name):
        _write_inputs(Path())
        for line in COMMANDS.strip().splitlines():
            arguments = shlex.split(line)
            if "broken" in arguments:
                _break(Path("out"), Path("broken"))
            yield arguments[0], json.loads(_called([*arguments, "--json"]))


def _called(arguments: list[str]) -> str:
    out = io.StringIO()
    # One core: starting processes takes longer than all there is to search here.
    with redirect_stdout(out), redirect_stderr(io.StringIO()), patch("wscc.cli.compile.cores", lambda: 1):
        main(arguments)
    return out.getvalue()


def _write_inputs(folder: Path) -> None:
    model = (CASES / "search.wsl").read_text(encoding="utf-8")
    (folder / "model.wsl").write_text(model, encoding="utf-8")
    slow = "2 x 2 die (0, 1) { peak 50 % }"
    for name, mesh, link in (("slow", slow, "1 MB/s"), ("tray", "2 x 4", "4 TB/s")):
        own = f"mesh {mesh} link {{ bandwidth {link}, latency 1 ns, flit 64 B, energy 5 pJ/bit, channels 2 }}"
        (folder / f"{name}.wsl").write_text(model.replace("mesh 2 x 2", own), encoding="utf-8")
    mixture = (SAMPLES / "moe-tiny.wsl").read_text(encoding="utf-8").replace("tiny-text.txt", "text")
    (folder / "moe.wsl").write_text(mixture, encoding="utf-8")
    (folder / "text").write_bytes(bytes(range(32)) * 8)
    config = (CASES / "configs" / "gpt2.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(config.replace("{", '{"unheard_of": 1,', 1), encoding="utf-8")
    view = model.replace("@ transpose(wte)", "@ wte").replace("vocab = 32", "vocab = 48")
    (folder / "view.wsl").write_text(view, encoding="utf-8")
    (folder / "small.json").write_text(json.dumps(GPT2), encoding="utf-8")
    save_file(random_checkpoint(GPT2), folder / "small.safetensors")
    (folder / "flows.txt").write_text("0,0 1,1 1000\n0,1 1,1 1000 same\n", encoding="utf-8")


def _break(source: Path, target: Path) -> None:
    """The artifact without the last wait of its first procedure that has one."""
    artifact = load_artifact(source)
    program = artifact.streams.programs[0]
    codes = list(program.procedures)
    at = next(i for i, c in enumerate(codes) if any(x.opcode == "wait" for x in c.body))
    last = max(i for i, x in enumerate(codes[at].body) if x.opcode == "wait")
    body = codes[at].body
    codes[at] = replace(codes[at], body=(*body[:last], *body[last + 1 :]))
    programs = (replace(program, procedures=tuple(codes)), *artifact.streams.programs[1:])
    write_artifact(target, replace(artifact, streams=replace(artifact.streams, programs=programs)))


# ---- paths


def leaves(value: object, path: Path_) -> Iterator[tuple[Path_, str]]:
    """Every path that ends, with the type of what is there."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from leaves(inner, (*path[:-1], f"{path[-1]}[]"))
    else:
        yield path, EMPTY if isinstance(value, dict | list) else _TYPES[type(value)]


def _fits(field: str, path: Path_, kind: str) -> bool:
    """Whether a path is of the field; one that ends in nothing, with whatever could have been inside."""
    names = field.split(".")
    if kind == EMPTY and len(names) >= len(path):
        names = [*names[: len(path) - 1], names[len(path) - 1].partition("[]")[0]]
    return len(names) == len(path) and all(
        n == p or n.startswith("<") for n, p in zip(names, path, strict=True)
    )
