"""Initial weights and batches: pure functions of their keys, whatever the layout or the micro-batches."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import Shape, gpt
from tests.support.paths import SAMPLES
from wscc.diagnostics import Code, CompileError
from wscc.host import random
from wscc.host.data import Batches
from wscc.host.data_file import read_data
from wscc.host.init import initial, initial_slice
from wscc.host.inputs import LABELS, Input, inputs_of
from wscc.host.rows import rows_of
from wscc.ir.array import Init
from wscc.ir.train import Train
from wscc.ir.types import DType

NORMAL = Init("normal", 0.02)


# ---- random numbers


def splitmix(state: int, count: int) -> list[int]:
    """The published generator, one number at a time."""
    mask, out = (1 << 64) - 1, []
    for _ in range(count):
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out.append(z ^ (z >> 31))
        state = (state + 0x9E3779B97F4A7C15) & mask
    return out


@given(st.integers(0, 2**64 - 1))
def test_words_are_the_splitmix_sequence(state: int) -> None:
    assert random.words(np.uint64(state), np.arange(9, dtype=np.uint64)).tolist() == splitmix(state, 9)


def test_normals_invert_the_normal_distribution() -> None:
    stream, counters = random.key("test"), np.arange(20_000, dtype=np.uint64)
    q = [((w >> 12) + 0.5) * 2.0**-52 for w in random.words(stream, counters).tolist()]
    want = [NormalDist().inv_cdf(p) for p in q]
    assert np.allclose(random.normals(stream, counters), want, rtol=3e-7, atol=1e-9)


def test_the_far_tail_is_inverted_too() -> None:
    """Too rare to be drawn in a test, so the function itself is asked; powers of two keep p - 1/2 exact."""
    p = 2.0 ** -np.arange(20, 54)
    want = [NormalDist().inv_cdf(float(x)) for x in p]
    assert np.allclose(random._inverse_normal(p - 0.5), want, rtol=3e-7)
    assert np.allclose(random._inverse_normal(0.5 - p), np.negative(want), rtol=3e-7)


@given(st.integers(1, 2**31), st.integers(0, 99))
def test_integers_stay_below_their_bound(below: int, key: int) -> None:
    drawn = random.integers(random.key(key), np.arange(500, dtype=np.uint64), below)
    assert drawn.min() >= 0
    assert drawn.max() < below


def test_keys_tell_their_parts_apart() -> None:
    parts = [("a", 1), ("a1",), ("a", "1"), ("b", 1), ("a", (1,)), ("a", 1, 0)]
    assert len({int(random.key(*p)) for p in parts}) == len(parts)


# ---- initial weights

SHAPE = st.lists(st.integers(1, 40), min_size=0, max_size=4).map(tuple)


@settings(max_examples=30, deadline=None)
@given(
    shape=SHAPE,
    seed=st.integers(0, 9),
    data=st.data(),
    dtype=st.sampled_from([DType.F32, DType.F64, DType.BF16]),
)
def test_a_slice_is_the_slice_of_the_whole(
    shape: tuple[int, ...], seed: int, data: st.DataObject, dtype: DType
) -> None:
    cuts = []
    for n in shape:
        start = data.draw(st.integers(0, n))
        cuts.append(slice(start, data.draw(st.integers(start, n))))
    whole = initial("w", (1,), shape, NORMAL, seed, dtype)
    part = initial_slice("w", (1,), shape, NORMAL, seed, dtype, tuple(cuts))
    assert part.dtype == whole.dtype == dtype.numpy
    assert part.tobytes() == whole[tuple(cuts)].tobytes()


@pytest.mark.parametrize("shape", [(70_000,), (3, 50_000), (300, 300), (50_000, 3)])
def test_large_arrays_are_made_in_blocks_of_the_same_numbers(shape: tuple[int, ...]) -> None:
    whole = initial("w", (), shape, NORMAL, 0, DType.F64)
    count = whole.size
    flat = random.normals(random.key("init", 0, "w", ()), np.arange(count, dtype=np.uint64)) * 0.02
    assert np.array_equal(whole.reshape(-1), flat)
    part = (slice(1, 3), *(slice(n // 3, n) for n in shape[1:]))
    assert np.array_equal(initial_slice("w", (), shape, NORMAL, 0, DType.F64, part), whole[part])


def test_weights_have_the_moments_of_a_normal_distribution() -> None:
    x = initial("w", (), (400, 500), Init("normal", 2.0), 3, DType.F64) / 2
    n = x.size
    assert abs(x.mean()) < 5 / n**0.5
    assert x.var() == pytest.approx(1, abs=5 * (2 / n) ** 0.5)
    assert (x**3).mean() == pytest.approx(0, abs=5 * (15 / n) ** 0.5)
    assert (x**4).mean() == pytest.approx(3, abs=5 * (96 / n) ** 0.5)
    for lag in (1, 2, 500):  # no echo along rows, columns or pairs
        flat = x.reshape(-1)
        assert abs((flat[lag:] * flat[:-lag]).mean()) < 5 / n**0.5
    counts = np.histogram(x, [-np.inf, -2, -1, 0, 1, 2, np.inf])[0] / n
    assert np.allclose(counts, [0.02275, 0.13591, 0.34134, 0.34134, 0.13591, 0.02275], atol=0.004)


def test_seeds_names_and_layers_are_unrelated() -> None:
    base = dict(name="w", index=(0,), shape=(1000,), init=NORMAL, seed=0, dtype=DType.F64)
    arrays = [initial(**{**base, **c}) for c in ({}, {"name": "v"}, {"index": (1,)}, {"seed": 1})]  # type: ignore[arg-type]
    correlation = np.corrcoef(arrays)
    assert np.abs(correlation - np.eye(4)).max() < 0.16  # 5 sigma of 1000 pairs


def test_narrow_types_hold_the_rounded_f64_numbers() -> None:
    exact, single = (initial("w", (), (99,), NORMAL, 0, t) for t in (DType.F64, DType.F32))
    assert np.array_equal(exact.astype(np.float32), single)


def test_zeros_and_ones() -> None:
    assert initial("b", (), (2, 3), Init(), 0, DType.F32).tolist() == [[0, 0, 0], [0, 0, 0]]
    part = initial_slice("g", (4,), (8,), Init("ones"), 0, DType.BF16, (slice(2, 4),))
    assert part.tolist() == [1, 1]
    assert part.dtype == DType.BF16.numpy


def test_numbers_never_change_from_one_version_or_machine_to_another() -> None:
    """Exact, because only exactly rounded operations are used; two of these lie in the tails."""
    weights = initial("block.wqkv", (3,), (12,), Init("normal", 1.0), 42, DType.F64)
    assert [x.hex() for x in weights.tolist()] == GOLDEN


GOLDEN = [
    "0x1.10ccbdce7d488p-1", "-0x1.b0535f1130f1cp-1", "0x1.af186a69e7f51p-1", "0x1.1fe1357abf657p+1",
    "-0x1.8e0d895fe1ac7p+0", "0x1.de74882e9fbe3p-1", "0x1.5f11b1fef0bd3p-1", "0x1.bb0f097d2f3a0p-1",
    "-0x1.50e81f15063a1p-1", "-0x1.a9dd833a491c6p-3", "-0x1.106406a7c508cp-1", "0x1.ad8a97de2d5efp-2",
]  # fmt: skip


# ---- batches


def of_text(text: bytes, *, m: int = 2, b: int = 3, seq: int = 5, vocab: int = 256, seed: int = 0) -> Batches:
    inputs = two_inputs(m, (b, seq), vocab)
    return Batches(inputs, seed, rows_of(np.frombuffer(text, np.uint8), inputs, Train(m * b, m)))


def two_inputs(m: int, shape: tuple[int, int], vocab: int) -> tuple[Input, Input]:
    return Input("tokens", m, shape, below=vocab), Input(LABELS, m, shape, below=vocab, ignores=True)


@given(text=st.binary(min_size=6, max_size=60), step=st.integers(0, 50), seed=st.integers(0, 5))
def test_sequences_are_pieces_of_the_text_and_labels_what_follows(text: bytes, step: int, seed: int) -> None:
    batch = of_text(text, seed=seed).batch(step)
    assert {x.shape for x in batch.values()} == {(2, 3, 5)}
    assert {x.dtype for x in batch.values()} == {np.dtype(np.int32)}
    for row, labels in zip(batch["tokens"].reshape(-1, 5), batch["labels"].reshape(-1, 5), strict=True):
        assert row[1:].tolist() == labels[:-1].tolist()
        assert bytes(row.astype(np.uint8)) + bytes([labels[-1]]) in text


@given(step=st.integers(0, 9), seed=st.integers(0, 9), textual=st.booleans())
def test_a_batch_does_not_depend_on_its_micro_batches(step: int, seed: int, textual: bool) -> None:
    text = np.arange(200, dtype=np.uint8) if textual else None

    def rows(m: int) -> list[list[int]]:
        inputs = two_inputs(m, (12 // m, 7), 256)
        rows = None if text is None else rows_of(text, inputs, Train(12, m))
        return Batches(inputs, seed, rows).batch(step)["tokens"].reshape(12, 7).tolist()

    assert rows(1) == rows(3) == rows(12)


def test_every_place_of_the_text_is_drawn_and_steps_differ() -> None:
    batches = of_text(bytes(range(20)), m=1, b=8)
    starts = {int(row[0]) for step in range(60) for row in batches.batch(step)["tokens"][0]}
    assert starts == set(range(15))  # 20 bytes hold 15 windows of 6
    assert batches.batch(0)["tokens"].tolist() != batches.batch(1)["tokens"].tolist()
    assert (
        batches.batch(3)["tokens"].tolist() == of_text(bytes(range(20)), m=1, b=8).batch(3)["tokens"].tolist()
    )


def test_without_text_tokens_are_uniform_over_the_vocabulary() -> None:
    batches = Batches(two_inputs(4, (8, 50), 7), 1)
    batch = batches.batch(0)
    counts = np.bincount(batch["tokens"].reshape(-1), minlength=7) / 1600
    assert counts.size == 7
    assert np.allclose(counts, 1 / 7, atol=0.04)
    assert batch["tokens"][..., 1:].tolist() == batch["labels"][..., :-1].tolist()


def test_a_text_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(CompileError, match="has 5 tokens, and one sequence takes 6") as short:
        of_text(b"hello")
    with pytest.raises(CompileError, match="token 3 of the text is 195, and the vocabulary has 128") as wide:
        of_text("caf\u00e9 au lait".encode(), vocab=128)
    codes = {e.value.diagnostics[0].code for e in (short, wide)}
    assert codes == {Code.DATA}
    assert "at least 196" in wide.value.diagnostics[0].help
    of_text(b"\x7f" * 6, vocab=128)
    with pytest.raises(CompileError, match="token 0 of the text is 127, and the vocabulary has 127"):
        of_text(b"\x7f" * 6, vocab=127)


def test_an_unreadable_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no such file") as missing:
        read_data(tmp_path / "none.txt")
    with pytest.raises(CompileError, match="is a directory"):
        read_data(tmp_path)
    assert missing.value.diagnostics[0].code is Code.UNREADABLE
    (tmp_path / "a.txt").write_bytes(b"ab")
    assert read_data(tmp_path / "a.txt").text().tolist() == [97, 98]


def test_inputs_and_vocabulary_are_read_off_the_module() -> None:
    module = gpt({}, Shape(batch=8, calls=2, seq=5, vocab=12))
    assert inputs_of(module) == two_inputs(2, (4, 5), 12)


# ---- the text that ships


def test_the_sample_text_is_ascii_and_large_enough() -> None:
    text = (SAMPLES / "tiny-text.txt").read_bytes()
    assert len(text) >= 30_000
    assert text.isascii()
    assert text.endswith(b"\n")
    assert set(text) <= {10, *range(32, 127)}, "only printable characters and line ends"
    lines = text.decode().splitlines()
    assert max(map(len, lines)) <= 100
    sentences = text.decode().replace("\n", " ").split(". ")
    assert len(set(sentences)) > 0.8 * len(sentences), "no padding by repetition"
