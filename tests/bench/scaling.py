"""What real sizes cost to compile, cold, to verify and to simulate: seconds, memory and size of the artifact, each in
a new process.

Seconds of the processor are shown beside those of the clock: they depend less on what else the machine does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import log
from pathlib import Path
from statistics import linear_regression, median

from tests.bench.simulating import Simulating, simulating

# A command line for `wscc compile`, or what makes one when it is asked for.
Options = str | Callable[[], str]
ROOM = "--set wafer.die.hbm=2000GB"


@dataclass(frozen=True, slots=True)
class Case:
    """`beside` names the case that it is compared with."""

    name: str
    options: Options
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one compilation and the simulation of what it made; `refused` is the last line of the error, if it is one."""

    seconds: float
    cpu: float
    memory: int
    artifact: int
    simulating: Simulating | None = None
    refused: str = ""


@cache
def _files() -> tempfile.TemporaryDirectory[str]:
    """A folder that lasts as long as this process, with the data of gpt-tiny."""
    folder = tempfile.TemporaryDirectory()
    shutil.copy("samples/tiny-text.txt", folder.name)
    return folder


def _written(name: str, text: str) -> str:
    """The path of a program."""
    path = Path(_files().name) / f"{name}.wsl"
    path.write_text(text)
    return str(path)


def _deep(times: int) -> str:
    """gpt-tiny with so many MLPs in a block, each with its own weights."""
    text = Path("samples/gpt-tiny.wsl").read_text()
    begin, end = text.index("    param g2"), text.index("  }\n\n  param gf")
    block = text[begin:end]
    names = "|".join(re.findall(r"param (\w+)", block))
    copies = (re.sub(rf"\b({names})\b", rf"\1_{n}", block) for n in range(times))
    return _written(f"mlps-{times}", text[:begin] + "".join(copies) + text[end:])


def _on_wse2() -> str:
    """gpt-tiny on a preset of 745,500 dies, each with room for it."""
    text = Path("samples/gpt-tiny.wsl").read_text()
    wafer = 'wafer tray = preset "wse2" { die { sram 8 MB } }\n\n'
    return _written("wse2", wafer + text[text.index("model gpt") :])


FULL = "--set train.recompute=full"
GPT3, LLAMA7, LLAMA70 = "samples/gpt3-175b.wsl", "samples/llama2-7b.wsl", "samples/llama2-70b.wsl"
CASES = (
    Case("gpt3-175b 6x8", GPT3),
    Case("gpt3-175b 2x2 wafers of 4x8", GPT3.replace(".wsl", "-4wafers.wsl")),
    Case("  with room", f"{GPT3} {ROOM}"),
    Case("  192 layers", f"{GPT3} {ROOM} --set model.layers=192", "  with room"),
    Case("  8 micro-batches", f"{GPT3} {ROOM} --set train.batch=32 --set train.microbatch=4"),
    Case(
        "  64 micro-batches",
        f"{GPT3} {ROOM} --set train.batch=256 --set train.microbatch=4",
        "  8 micro-batches",
    ),
    Case("gpt3-175b 4x8", f"{GPT3} --set wafer.mesh=4x8 --parallel tp=4,tatp=8"),
    Case(
        "gpt3-175b 12x12", f"{GPT3} --set wafer.mesh=12x12 --set train.batch=576 --parallel dp=3,tp=6,tatp=8"
    ),
    Case(
        "  tp=3, tatp=16",
        f"{GPT3} --set wafer.mesh=12x12 --set train.batch=1440 --set train.microbatch=4 --parallel dp=3,tp=3,tatp=16",
    ),
    Case("llama2-7b 4x8", LLAMA7),
    Case("llama2-7b 6x8", f"{LLAMA7} --set wafer.mesh=6x8 --set train.batch=96 --parallel dp=6,tatp=8"),
    Case("llama2-7b 12x12", f"{LLAMA7} --set wafer.mesh=12x12 --set train.batch=144 --parallel dp=18,tatp=8"),
    Case("llama2-70b 4x8", LLAMA70),
    Case(
        "llama2-70b 6x8",
        f"{LLAMA70} {FULL} --set wafer.mesh=6x8 --set train.batch=96 --parallel dp=3,tp=2,tatp=8",
    ),
    Case(
        "llama2-70b 12x12",
        f"{LLAMA70} {FULL} --set wafer.mesh=12x12 --set train.batch=144 --parallel dp=9,tp=2,tatp=8",
    ),
    Case("grok-1 6x8", "samples/grok-1.wsl"),
    Case("8 dies of wse2", _on_wse2),
    Case(
        "gpt3-175b 32x32", f"{GPT3} --set wafer.mesh=32x32 --set train.batch=512 --parallel dp=4,tp=8,tatp=32"
    ),
)


def _tiny(side: int) -> str:
    """gpt-tiny on a square of dies, with a sequence for each."""
    return f"samples/gpt-tiny.wsl --set wafer.mesh={side}x{side} --set train.batch={side * side}"


@dataclass(frozen=True, slots=True)
class Series:
    """Compilations that differ in one size: the options for each of its values, from the smallest on. Time should grow
    by no more than this `power` of the size."""

    name: str
    power: int
    options: Mapping[int, Options]


# Powers of a size.
LINEAR, FLAT = 1, 0
GOALS = {LINEAR: "at most linear", FLAT: "flat"}
# By so much exponents of equal programs differed on a busy machine, where sizes are 16 times as large.
NOISE = 0.2
SERIES = (
    Series("dies, dp", LINEAR, {
        n * n: f"{_tiny(n)} --set train.microbatch=1 --parallel dp={n * n}"
        for n in (4, 8, 16, 24, 32)
    }),
    Series("dies, dp and tatp", LINEAR, {
        n * n: f"{_tiny(n)} --set train.microbatch={n} --parallel dp={n},tatp={n}"
        for n in (4, 8, 16, 32)
    }),
    Series("MLPs in a block", LINEAR, {n: partial(_deep, n) for n in (1, 4, 16, 64)}),
    Series("layers", FLAT, {n: f"{LLAMA7} {ROOM} --set model.layers={n}" for n in (8, 32, 128)}),
    Series("tokens of a sequence", FLAT, {
        n: f"{LLAMA7} {ROOM} --set model.seq={n} --set train.recompute=full" for n in (1024, 2048, 4096, 8192)
    }),
    Series("sequences of a micro-batch", FLAT, {
        n: f"{GPT3} {ROOM} --set train.batch=256 --set train.microbatch={n}" for n in (4, 8, 16)
    }),
    Series("micro-batches", FLAT, {
        n: f"{GPT3} {ROOM} --set train.batch={4 * n} --set train.microbatch=4" for n in (1, 8, 64)
    }),
)  # fmt: skip


def show_scaling(times: int) -> None:
    _show_cases(times)
    _show_series(times)


def _show_series(times: int) -> None:
    print(
        "growth with one size: CPU seconds to compile, and to verify and to simulate what was read, and instructions"
    )
    print(
        "of all dies; beside each, what it grew by since the row before. Last, exponents: the slopes of straight lines"
    )
    print(f"through all rows in logarithms, and whether they meet the goal (by {NOISE} runs differ)")
    print(f"{'':<20}{'size times':>12}" + "".join(f"{n:>14}{'times':>8}" for n in COLUMNS))
    for series in SERIES:
        print(f"{series.name} (goal: {GOALS[series.power]})")
        rows: list[tuple[int, tuple[float, ...]]] = []
        for size, options in series.options.items():
            cost = _median([_compile(options) for _ in range(times)])
            if cost.simulating is None:
                print(f"  {size:<18}  refused: {cost.refused}", flush=True)
                continue
            s = cost.simulating
            rows.append((size, (cost.cpu, s.verifying, s.cpu, s.instructions)))
            print(_row(*rows[-2:]), flush=True)
        if rows[1:]:
            exponents = [exponent([n for n, _ in rows], [c[k] for _, c in rows]) for k in range(len(COLUMNS))]
            line = "".join(f"{e:>14.2f}{_verdict(e, series.power):>8}" for e in exponents[:-1])
            print(f"  {'exponent':<30}{line}{exponents[-1]:>14.2f}", flush=True)
    print()


COLUMNS = ("compile", "verify", "simulate", "instructions")


def _row(*rows: tuple[int, tuple[float, ...]]) -> str:
    """The last of one or two rows, and what it grew by since the other."""
    *before, (size, costs) = rows
    grown = [_times(a, b) for a, b in zip(before[0][1], costs, strict=True)] if before else [""] * len(costs)
    words = [*(f"{cpu:.2f}" for cpu in costs[:-1]), f"{costs[-1]:,.0f}"]
    row = f"  {size:<18}" + f"{_times(before[0][0], size) if before else '':>12}"
    return row + "".join(f"{word:>14}{g:>8}" for word, g in zip(words, grown, strict=True))


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The power of the size by which costs grow: the slope of the line of least squares through the logarithms."""
    return linear_regression([*map(log, sizes)], [*map(log, costs)]).slope


def _verdict(grown: float, power: int) -> str:
    return "yes" if grown <= power + NOISE else "no"


def _times(a: float, b: float) -> str:
    return f"{b / a:.2f}"


def _show_cases(times: int) -> None:
    print(f"real sizes, cold: medians of {times}; the last column compares with the case named before")
    print(
        f"{'':<22}{'seconds':>9}{'CPU s':>8}{'memory MB':>11}{'artifact MB':>13}{'simulated CPU s':>17}"
        f"{'us/instruction':>16}"
    )
    known: dict[str, Cost] = {}
    for case in CASES:
        cost = known[case.name] = _median([_compile(case.options) for _ in range(times)])
        if cost.refused:
            print(f"{case.name:<22}{cost.seconds:>9.2f}{cost.cpu:>8.2f}  refused: {cost.refused}")
            continue
        row = f"{case.name:<22}{cost.seconds:>9.2f}{cost.cpu:>8.2f}"
        row += f"{cost.memory / 1e6:>11.0f}{cost.artifact / 1e6:>13.2f}"
        if cost.simulating:
            row += f"{cost.simulating.cpu:>17.2f}{1e6 * cost.simulating.cpu / cost.simulating.instructions:>16.1f}"
        if case.beside:
            other = known[case.beside]
            row += f"   CPU {_more(cost.cpu, other.cpu):+.1f} %"
            row += f", artifact {_more(cost.artifact, other.artifact):+.2f} %"
            if cost.simulating and other.simulating:
                row += f", simulated CPU {_more(cost.simulating.cpu, other.simulating.cpu):+.1f} %"
        print(row, flush=True)
    print()


def _more(a: float, b: float) -> float:
    """Per cent by which a is above b."""
    return 100 * (a / b - 1)


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        median(c.seconds for c in costs), median(c.cpu for c in costs),
        round(median(c.memory for c in costs)), costs[0].artifact,
        min((c.simulating for c in costs if c.simulating), key=lambda s: s.cpu, default=None), costs[0].refused,
    )  # fmt: skip


def _compile(given: Options) -> Cost:
    options = given if isinstance(given, str) else given()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        out = Path(folder) / "out"
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "wscc", "compile", *options.split(), "-o", str(out)],
            stdout=subprocess.DEVNULL, stderr=output,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begun
        output.seek(0)
        text = output.read().decode()
        refused = next((line for line in text.splitlines() if line.startswith("error")), "")
        assert (process.returncode != 0) == bool(refused), text
        size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file()) if out.is_dir() else 0
        simulated = None if refused else simulating(out)
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, size, simulated, refused)
