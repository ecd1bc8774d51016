"""Data: rows of named arrays from files and texts, what is refused of them, and what is held out."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save

from wscc.diagnostics import Code, CompileError
from wscc.files.archives import ArchiveMistake, parse_npz
from wscc.files.kinds import DATA
from wscc.host.data import Batches, counted
from wscc.host.data_file import Arrays, DataFile
from wscc.host.inputs import LABELS, Input
from wscc.host.rows import Rows, rows_of
from wscc.ir.train import Train
from wscc.ir.types import DType

SEQ, VOCAB, BATCH = 5, 9, 4
INPUTS = (
    Input("tokens", 2, (2, SEQ), below=VOCAB),
    Input(LABELS, 2, (2, SEQ), below=VOCAB, ignores=True),
)
TRAIN = Train(BATCH, 2)


def drawn(rows: int = 6, seed: int = 0) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCAB, (rows, SEQ + 1))
    labels = tokens[:, 1:].copy()
    labels[::2, :2] = -100
    return {"tokens": tokens[:, :-1], "labels": labels}


def npz(arrays: Arrays, *, packed: bool = False) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(out, **arrays)
    return out.getvalue()


def rows(data: Any, *, inputs: tuple[Input, ...] = INPUTS, **train: Any) -> Rows:
    return rows_of(data, inputs, Train(BATCH, 2, **train))


def first_batch(data: Any) -> dict[str, list[Any]]:
    return {n: a.tolist() for n, a in Batches(INPUTS, 0, rows(data)).batch(0).items()}


def refusal(data: Any, **options: Any) -> str:
    """The message and the help of the error that the data must give."""
    with pytest.raises(CompileError) as caught:
        rows(data, **options)
    (problem,) = caught.value.diagnostics
    assert problem.code is Code.DATA
    assert problem.help
    return f"{problem.message}; {problem.help}"


# ---- what is read


@pytest.mark.parametrize("dtype", ["i1", "<i2", ">i4", "<i8", "u1"])
def test_integers_of_any_width_and_order_are_the_same_tokens(dtype: str) -> None:
    plain = drawn()
    labels = plain["labels"].astype(dtype if dtype != "u1" else "i1")
    other = {"tokens": np.asfortranarray(plain["tokens"].astype(dtype)), "labels": labels}
    native = {n: np.ascontiguousarray(a.astype(a.dtype.newbyteorder("="))) for n, a in other.items()}
    wanted = first_batch(plain)
    for data in (other, DataFile("d.NPZ", npz(other, packed=True)), DataFile("d.safetensors", save(native))):
        assert first_batch(data) == wanted
    assert wanted["labels"][0][0] == plain["labels"][0].tolist()


def test_rows_take_turns_in_the_order_of_the_file() -> None:
    """Whatever the micro-batches, and from the first row again behind the last."""
    arrays = {n: np.arange(7)[:, None] + np.zeros((7, SEQ), int) for n in ("tokens", "labels")}
    for m in (1, 2, 4):
        inputs = tuple(Input(i.name, m, (BATCH // m, SEQ), below=VOCAB) for i in INPUTS)
        batches = Batches(inputs, 3, rows_of(arrays, inputs, Train(BATCH, m)))
        order = [int(r) for s in range(4) for r in batches.batch(s)["tokens"][..., 0].reshape(-1)]
        assert order == [i % 7 for i in range(16)]


def test_floats_go_to_inputs_that_are_declared_so() -> None:
    inputs = (*INPUTS, Input("x", 2, (2, 3), DType.F32))
    x = np.arange(18).reshape(6, 3) / 8
    for dtype in (np.float16, np.float64):
        arrays = {**drawn(), "x": x.astype(dtype)}
        batch = Batches(inputs, 0, rows(arrays, inputs=inputs)).batch(0)
        assert batch["x"].dtype == np.float32
        assert batch["x"].reshape(4, 3).tolist() == x[:4].tolist()
    assert Batches(inputs, 0).batch(1)["x"].std() > 0
    for value in (np.nan, np.inf, 1e300):
        wrong = x.copy()
        wrong[4, 1] = value
        assert "`x[4, 1]` is" in refusal({**drawn(), "x": wrong}, inputs=inputs)
    assert "holds int64, and the input is f32" in refusal({**drawn(), "x": x.astype(int)}, inputs=inputs)
    assert "input `x` is f32" in refusal(np.zeros(99, np.uint8), inputs=inputs)


# ---- what is refused


def changed(name: str, change: Callable[[NDArray[Any]], Any]) -> dict[str, Any]:
    arrays = drawn()
    return {**arrays, name: change(arrays[name])}


def with_value(name: str, index: tuple[int, int], value: int, dtype: Any = np.int64) -> dict[str, Any]:
    def put(x: NDArray[Any]) -> NDArray[Any]:
        x = np.where(x < 0, 0, x).astype(dtype)
        x[index] = value
        return x

    return changed(name, put)


REFUSED: dict[str, tuple[Any, str]] = {
    "missing": ({"tokens": drawn()["tokens"]}, "has no array `labels`; it has `tokens`; give an array"),
    "misspelt": ({"tokens": 0, "label": 0}, "has no array `labels`; it has `tokens`, `label`; rename `label`"),
    "extra": ({**drawn(), "mask": 0}, "no input `mask`, which is an array of `d.npz`; leave it out"),
    "extra odd": ({**drawn(), "\x1b[2J": 0}, "no input `\\x1b[2J`, which"),
    "rank": (changed("tokens", np.ravel), "`tokens` of `d.npz` is [30], and the model takes [rows, 5]"),
    "no rank": (changed("tokens", lambda x: x[0, 0]), "is [], and the model takes [rows, 5]"),
    "width": (changed("labels", lambda x: x[:, 1:]), "`labels` of `d.npz` is [6, 4], and the model takes"),
    "rows": (changed("labels", lambda x: x[1:]), "`labels` of `d.npz` has 5 rows, and `tokens` has 6"),
    "few": (drawn(3), "`d.npz` has 3 rows and a step takes 4; give 1 row more"),
    "none": (drawn(0), "`d.npz` has 0 rows and a step takes 4"),
    "floats": (changed("tokens", lambda x: x / 1), "holds float64, and the input is i32; integers of any"),
    "halves": (changed("tokens", lambda x: x.astype("f2")), "holds float16, and the input is i32"),
    "truths": (changed("tokens", lambda x: x > 1), "`tokens` of `d.npz` holds bool, and the input is i32"),
    "complex": (changed("tokens", lambda x: x + 1j), "array `tokens` of `d.npz`"),
    "words": (changed("tokens", lambda x: x.astype(str)), "array `tokens` of `d.npz`"),
    "negative": (with_value("tokens", (3, 1), -1), "`tokens[3, 1]` of `d.npz` is -1, and the vocabulary has 9"),
    "ignored": (with_value("tokens", (0, 4), -100), "`tokens[0, 4]` of `d.npz` is -100, and the vocabulary"),
    "large": (with_value("tokens", (5, 4), VOCAB), "is 9, and the vocabulary has 9 tokens; integers from 0 to 8"),
    "huge": (with_value("tokens", (1, 2), 2**63, np.uint64), "`tokens[1, 2]` of `d.npz` is 9223372036854775808"),
    "label": (with_value("labels", (2, 2), -99), "`labels[2, 2]` of `d.npz` is -99, and the vocabulary has 9"),
    "label large": (with_value("labels", (2, 3), VOCAB), "from 0 to 8, or -100 where none counts"),
    "wrapped": (with_value("labels", (0, 0), 65436, np.uint16), "`labels[0, 0]` of `d.npz` is 65436"),
    "nothing counts": (changed("labels", lambda x: x * 0 - 100), "every label of `d.npz` of the rows to train on"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_named_with_its_place(case: str) -> None:
    arrays, words = REFUSED[case]
    assert words in refusal(DataFile("d.npz", npz(arrays)))
    in_memory = refusal(arrays)
    if " of `d.npz` is" in words:
        assert words.replace(" of `d.npz`", "") in in_memory


def test_integers_that_number_nothing_must_fit_their_type() -> None:
    inputs = (*INPUTS, Input("n", 2, (2, 1)))
    assert rows({**drawn(), "n": np.full((6, 1), -(2**31))}, inputs=inputs).trained == 6
    assert "`n[0, 0]` is 2147483648, and the input is i32" in refusal(
        {**drawn(), "n": np.full((6, 1), 2**31)}, inputs=inputs
    )


def test_a_name_that_is_there_twice_is_refused() -> None:
    entry = b'"tokens":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    header = b"{%s,%s}" % (entry, entry)
    twice = len(header).to_bytes(8, "little") + header + b"\0"
    assert "`tokens` is given twice" in refusal(DataFile("d.safetensors", twice))
    both = npz(drawn()).replace(b"labels.npy", b"tokens.npy")
    assert "array `tokens` of `d.npz` cannot be read: it is there twice" in refusal(DataFile("d.npz", both))


def test_python_objects_are_never_loaded() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return pytest.fail, ("a pickle was loaded",)

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("tokens.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|O", "fortran_order": False, "shape": (1,)})
        member.write(pickle.dumps([Trap()]))
    assert "objects are never loaded" in refusal(DataFile("d.npz", out.getvalue()))


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    """Many names for the same megabyte of zeros, and one that states more than it has."""
    packed = npz({f"a{i}": np.zeros(1 << 20, np.uint8) for i in range(3)}, packed=True)
    with pytest.raises(ArchiveMistake, match="3,146,112 bytes unpacked, and the limit is 3,000,000"):
        parse_npz(packed, 3_000_000)
    stated = (1 << 20) + 128
    lying = packed.replace(stated.to_bytes(4, "little"), (DATA.limit // 4).to_bytes(4, "little"))
    assert "cannot be read" in refusal(DataFile("d.npz", lying))


@pytest.mark.parametrize("name", ["d.npz", "d.safetensors", "d.txt"])
def test_an_ending_that_belongs_to_another_kind_is_named(name: str) -> None:
    contents = {"d.npz": npz(drawn()), "d.safetensors": save({"tokens": np.arange(3)}), "d.txt": b"text" * 9}
    out = io.BytesIO()
    np.save(out, drawn()["tokens"])
    contents["d.npy"] = out.getvalue()
    for other, content in contents.items():
        if other != name:
            assert f"`{name}`" in refusal(DataFile(name, content)), other


@settings(max_examples=75, deadline=None)
@given(st.booleans(), st.booleans(), st.data())
def test_a_damaged_file_is_an_error_with_a_name(in_zip: bool, packed: bool, data: st.DataObject) -> None:
    """Or it is none, since nothing that matters was changed."""
    arrays = drawn()
    name, whole = ("d.npz", npz(arrays, packed=packed)) if in_zip else ("d.safetensors", save(arrays))
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    found = attempted(DataFile(name, bytes(content[:cut])))
    if isinstance(found, CompileError):
        assert found.diagnostics[0].code is Code.DATA
    elif in_zip:  # which has sums of its bytes
        assert all((found.arrays[n] == arrays[n]).all() for n in arrays)


def attempted(data: Any, **options: Any) -> Rows | CompileError:
    try:
        return rows(data, **options)
    except CompileError as problem:
        return problem


# ---- what is held out

ASKED = {"fewer": r"`validation (\d+) rows`", "more": r"give (\d+) rows? more"}


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(2 * SEQ + 2, 80),
    held=st.one_of(
        st.builds(lambda n: {"validation_rows": n}, st.integers(1, 6)),
        st.builds(lambda p: {"validation_percent": p}, st.integers(20, 60)),
    ),
)
def test_no_token_that_is_held_out_of_a_text_is_trained_on(size: int, held: dict[str, Any]) -> None:
    text = np.arange(size, dtype=np.uint8)  # every token is its own place
    inputs = tuple(Input(i.name, 2, (2, SEQ), below=256, ignores=i.ignores) for i in INPUTS)
    made = attempted(text, inputs=inputs, **held)
    if isinstance(made, CompileError):
        assert made.diagnostics[0].code is Code.DATA
        return
    batches = Batches(inputs, 0, made)
    trained = {n: made.take(i, np.arange(made.trained)) for i in inputs for n in [i.name]}
    seen = {int(t) for a in trained.values() for t in a.reshape(-1)}
    held_out = list(batches.validation())
    counted_labels = [int(t) for b in held_out for t in b[LABELS].reshape(-1) if t != -100]
    first = counted_labels[0] - 1
    assert seen == set(range(first)), "all before it is trained on, and nothing else"
    assert counted_labels == list(range(first + 1, size)), "each label behind it once, in order"
    share = held.get("validation_rows") or (size - 1) // SEQ * held["validation_percent"] // 100
    assert len(counted_labels) == share * SEQ


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 14), st.integers(1, 9))
def test_the_last_rows_of_arrays_are_held_out(count: int, kept: int) -> None:
    arrays = drawn(count)
    if count - kept < BATCH:
        assert "leaves none of" in (words := refusal(arrays, validation_rows=kept)) or "are held out" in words
        return
    made = rows(arrays, validation_rows=kept)
    assert made.trained == count - kept
    batches = list(Batches(INPUTS, 0, made).validation())
    tokens = np.concatenate([b["tokens"].reshape(-1, SEQ) for b in batches])[:kept]
    assert tokens.tolist() == arrays["tokens"][-kept:].tolist()
    assert sum(map(counted, batches)) == (arrays["labels"][-kept:] != -100).sum()


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 9),
    held=st.one_of(
        st.builds(lambda n: {"validation_rows": n}, st.integers(0, 9)),
        st.builds(lambda p: {"validation_percent": p}, st.floats(0.5, 99)),
    ),
    text=st.booleans(),
    extra=st.integers(0, SEQ - 1),
)
def test_numbers_that_a_refusal_asks_for_are_enough(
    count: int, held: dict[str, Any], text: bool, extra: int
) -> None:
    def data(more: int) -> Any:
        return np.arange((count + more) * SEQ + 1 + extra) % VOCAB if text else drawn(count + more)

    found = attempted(data(0), **held)
    if not isinstance(found, CompileError):
        return
    (problem,) = found.diagnostics
    numbers = {
        n: int(m[1]) for n, m in ((n, re.search(words, problem.help)) for n, words in ASKED.items()) if m
    }
    assert numbers or "give" in problem.help
    if "fewer" in numbers:
        assert rows(data(0), validation_rows=numbers["fewer"]).held_out.size == numbers["fewer"] > 0
    if "more" in numbers:
        assert rows(data(numbers["more"]), **held).trained == BATCH


def test_a_share_that_holds_out_nothing_or_everything_is_refused() -> None:
    assert "`validation 10 %` of 6 rows is less than one row" in refusal(drawn(), validation_percent=10.0)
    assert "none of the 6 rows of the data to train on; hold out fewer: `validation 2 rows`" in refusal(
        drawn(), validation_rows=6
    )
    held = refusal(drawn(), validation_percent=50.0)
    assert (
        "6 rows, of which 3 are held out, and a step takes 4; give more rows, or `validation 2 rows`" in held
    )
    assert rows(drawn(), validation_rows=2).trained == 4
    assert "that are not held out" in refusal(np.zeros(11, np.uint8), validation_rows=1)
    silent = drawn()
    silent["labels"][4:] = -100
    assert "every label of the rows held out" in refusal(silent, validation_rows=2)
    exact = [rows(drawn(100), validation_percent=p).held_out.size for p in (29.0, 2.5, 0.1 * 57 * 10)]
    assert exact == [29, 2, 57]
    assert all(b - a == 1 for a, b in pairwise(rows(drawn(), validation_rows=2).held_out.tolist()))


def test_an_input_without_an_element_for_each_sequence_gets_tokens_but_no_rows() -> None:
    inputs = (*INPUTS, Input("places", 2, (7,), below=VOCAB))
    for made in (None, rows(np.zeros(40, np.uint8), inputs=inputs)):
        assert Batches(inputs, 0, made).batch(1)["places"].shape == (2, 7)
    words = "input `places` is [7], which is not one row for each sequence"
    assert words in refusal({**drawn(), "places": np.zeros((6, 1), int)}, inputs=inputs)
    assert words in refusal(np.zeros(40, np.uint8), inputs=inputs, validation_rows=1)
