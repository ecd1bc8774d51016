"""Programs that once went wrong, each with what was wrong; found by `tests.fuzz` and made small by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.draw import Draw, Line, Part
from tests.support.verdict import EQUAL, Verdict, verdict


def test_a_wafer_without_a_live_die_is_refused_by_name(tmp_path: Path) -> None:
    """The message looked for the largest axis of a strategy that has none."""
    draw = Draw(rows=1, cols=1, dead_dies=frozenset({(0, 0)}))
    found = verdict(draw.text, tmp_path)
    assert (found.what, "all of them are dead" in found.why) == ("W301", True)


def test_a_split_of_a_weight_leaves_room_for_the_axis_that_shards_it(tmp_path: Path) -> None:
    """A weight [12, 6] over tp = 2 and tatp = 4: tp must take the 6, for 4 divides 12 alone. It took the 12, and
    the program was refused."""
    parts = (Part(0, (Line("shared_up_and_down"),)), Part(2, (Line("mlp"),)))
    degrees = (("tatp", 4), ("tp", 2))
    draw = Draw(rows=2, cols=4, d=12, f=6, parts=parts, degrees=degrees)
    found = verdict(draw.text, tmp_path)
    assert found.what == EQUAL, found.why


# ---- names of the program that are also names of the compiler

BODY = """
wafer w {{ mesh 1 x 2  die {{ peak 1 TFLOP/s, sram 80 MB }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
block mlp(h, d) {{ param v : [d, d] init normal(0.3)  param up : [d, d] init normal(0.3)  return gelu(h @ up) @ v }}
model m(d = 8, seq = 4, vocab = 12) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param s : [d, d] init normal(0.3)
  x = embedding(tokens, wte)
  y = gelu(x)
  {body}
  loss cross_entropy(x @ transpose(wte), labels)
}}
train m on w {{
  batch 4  microbatch 2
  optimizer adamw(lr = 1e-2)
  dtype compute f64, params f64, grads f64
  parallel tp = 2
}}
"""


def named(body: str, folder: Path) -> Verdict:
    return verdict(BODY.format(body=body), folder)


@pytest.mark.parametrize("name", ["t", "norm2", "count", "start", "prepare", "begin", "l", "mb"])
def test_a_value_may_have_any_name(name: str, tmp_path: Path) -> None:
    """A carried `t` was taken for the step counter, a carried `count` for the number of valid labels."""
    found = named(
        f"{name} = x / 2  repeat 2 as r {{ x = x + {name} @ s  {name} = gelu({name}) + y }}", tmp_path
    )
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("name", ["start", "prepare", "begin", "zero", "prologue", "t", "loss", "count"])
def test_a_repeat_may_have_any_name(name: str, tmp_path: Path) -> None:
    """`start` and `prepare` were procedures of the compiler's own."""
    found = named(
        f"repeat 2 as {name} {{ param grad : [d, d] init ones  x = x + gelu(x @ grad) + y @ s }}", tmp_path
    )
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("inside", ["grad", "m", "v", "partial", "h"])
def test_a_value_saved_in_a_repeat_of_the_name_of_another(inside: str, tmp_path: Path) -> None:
    """The residual `y.grad` of a repeat `y` lay where the gradient of the value `y` was: silently wrong."""
    body = f"repeat 2 as y {{ {inside} = x @ s + x  x = x + gelu({inside}) * {inside} }}  x = x + y"
    found = named(body, tmp_path)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("inside", ["grad", "m", "v", "partial"])
def test_a_parameter_of_the_name_of_a_gradient_or_moment(inside: str, tmp_path: Path) -> None:
    """`v` in a repeat `y`, beside a value `y`, was refused, because it would have been taken for y's second moment. A
    parameter `partial` was left out of the weights."""
    layer = f"{{ param {inside} : [d, d] init normal(0.3)  x = x + gelu(x @ {inside}) + y @ s }}"
    assert named(f"repeat 2 as r {layer}", tmp_path).what == EQUAL
    assert named(f"repeat 1 as r {{ x = x + y @ s  y = x }}  repeat 2 as y {layer}", tmp_path).what == EQUAL


def test_a_block_of_the_name_of_a_value(tmp_path: Path) -> None:
    assert named("mlp = y @ s  repeat 1 as r { x = x + mlp }  x = x + mlp(x, d)", tmp_path).what == EQUAL


def test_integers_under_another_name_do_not_cross_a_repeat(tmp_path: Path) -> None:
    """They were copied by a multiplication, and the copy was of floats."""
    found = named("ids = tokens  repeat 2 as r { x = x + embedding(ids, wte) @ s + y }", tmp_path)
    assert (found.what, "`ids` holds integers" in found.why) == ("W103", True)


@pytest.mark.parametrize("e", [1, 3, 7])
def test_rotary_positions_of_an_odd_width(e: int, tmp_path: Path) -> None:
    """The program was compiled, and its artifact would not load."""
    draw = Draw(rows=1, cols=1, e=e, parts=(Part(1, (Line("gqa_rope"),)),))
    found = verdict(draw.text, tmp_path)
    assert (found.what, f"{e} is odd" in found.why) == ("W101", True)
