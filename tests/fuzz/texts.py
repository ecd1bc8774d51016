"""Random mistakes in textual IR at every level: `python -m tests.fuzz.texts [COUNT] [SEED]`.

What comes of one is a module, or a refusal with a place in the text: no traceback, no fault of a pass, no long wait.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections import Counter
from functools import cache
from random import Random
from types import FrameType

from wscc.diagnostics import CompileError, Source
from wscc.driver.module_text import UNLIKE_ANY, after_passes, read_module
from wscc.driver.pipeline import Pipeline
from wscc.frontend.elaborate import elaborate
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.ir.text.print import to_text
from wscc.passes.registry import PASSES

SLOW = 5.0  # seconds that a text may take
MODEL = """
wafer w { mesh 2 x 2  die { peak 1 TFLOP/s, sram 80 MB }  link { bandwidth 1 TB/s, latency 100 ns } }
model m(d = 8, heads = 2, e = 4, vocab = 12, seq = 4) {
  input tokens : i32[batch, seq]  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  x = embedding(tokens, wte)
  repeat 2 as block {
    param g : [d] init ones decay off
    param wqkv : [d, 3, heads, e] init normal(0.3)
    param wo : [heads, e, d] init normal(0.3)
    q, k, v = split(project(rmsnorm(x, g), wqkv))
    x = x + project(attention(q, k, v, causal), wo)
  }
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w {
  batch 4  microbatch 1  optimizer adamw(lr = 1e-2, weight_decay = 0.1)  clip 0.5  group "wte" { lr x 0.1 }
  lr_schedule warmup(3), cosine(10, 0.1)  recompute selective  parallel %s
}
"""
STRATEGIES = ("dp = 2, tp = 2", "pp = 2, tatp = 2")
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|[%@]?[A-Za-z_][\w./]*=?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\S')
_NUMBER = re.compile(r"-?\d")
_NUMBERS = (
    "nan", "-1", "0", "1", "2", "3", "7", "inf", "1e400", str(2**63), "1000000000000", "-0.0", "0.5", "1e-320",
)  # fmt: skip
_HEADER = 7  # lines


@cache
def texts(strategy: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The module of a strategy before all passes and after each, as text, and the passes that come then."""
    graph = elaborate(resolve(parse(Source("m.wsl", MODEL % strategy))))
    pipeline = Pipeline.default()
    names = tuple(p.name for p in pipeline.passes)
    found = [(to_text(graph), names)]
    pipeline.run(graph, observe=lambda n, m: found.append((to_text(m), names[names.index(n) + 1 :])))
    return tuple(found)


def changed(rng: Random, text: str) -> str:
    """The text with some mistakes in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice((_number, _number, _number, _without_word, _words_exchanged, _lines))(rng, text)
    return text


def _words(rng: Random, text: str) -> list[re.Match[str]]:
    """All words; often those of the header alone."""
    end = len(text)
    if rng.random() < 0.35:
        end = len("".join(text.splitlines(keepends=True)[:_HEADER]))
    return [*_TOKEN.finditer(text, 0, end)] or [*_TOKEN.finditer("x")]


def _number(rng: Random, text: str) -> str:
    words = _words(rng, text)
    word = rng.choice([w for w in words if _NUMBER.match(w.group())] or words)
    return text[: word.start()] + rng.choice(_NUMBERS) + text[word.end() :]


def _without_word(rng: Random, text: str) -> str:
    word = rng.choice(_words(rng, text))
    return text[: word.start()] + text[word.end() :]


def _words_exchanged(rng: Random, text: str) -> str:
    words = _words(rng, text)
    a, b = sorted((rng.choice(words), rng.choice(words)), key=lambda w: w.start())
    if a.end() > b.start():
        return text
    return text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group() + text[b.end() :]


def _lines(rng: Random, text: str) -> str:
    """A line dropped, doubled, or exchanged for another."""
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            del lines[i]
        case 1:
            lines.insert(i, lines[i])
        case _:
            lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


def draw(number: int, seed: int) -> tuple[str, tuple[str, ...]]:
    """A text with mistakes, and passes to run on it."""
    rng = Random(f"{seed}/{number}")
    text, rest = rng.choice(texts(rng.choice(STRATEGIES)))
    return changed(rng, text), rest[: rng.choice((0, 1, 1, 2, len(rest)))]


def fault(text: str, passes: tuple[str, ...]) -> str:
    """What is wrong with what becomes of a text; empty if nothing is."""
    started = time.perf_counter()
    try:
        after_passes(read_module(Source("x.wir", text)), [PASSES[p]() for p in passes])
    except CompileError as error:
        for d in error.diagnostics:
            if d.label.span.source is None:
                return f"{d.code} without a place: {d.message}"
            if d.help == UNLIKE_ANY:
                return d.message
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    seconds = time.perf_counter() - started
    return f"{seconds:.0f} s" if seconds > SLOW else ""


def _hangs(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError("no result after 60 s")


def main(count: int, seed: int) -> int:
    signal.signal(signal.SIGALRM, _hangs)
    faults: Counter[str] = Counter()
    for number in range(count):
        signal.alarm(60)
        words = fault(*draw(number, seed))
        signal.alarm(0)
        if words:
            faults[words[:100]] += 1
            print(f"{number}: {words[:200]}", flush=True)
    print(f"{count} texts, {faults.total()} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    sys.exit(main(*(given + [3000, 0][len(given) :])))
