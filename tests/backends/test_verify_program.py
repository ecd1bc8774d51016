"""`wscc verify` on whole programs: right ones pass, each kind of mistake is named, corruptions are caught."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.fuzz.artifacts import PROGRAMS, caught_by, program
from tests.fuzz.corruptions import CORRUPTIONS, corrupted
from tests.oracles.slot_depth import ends_with
from tests.support.compile_once import artifact_of
from tests.support.models import gpt
from tests.support.small_programs import ARENA, EXCHANGE, POSTED, SENDER, SENT, SWAP, manifest, one, straight
from wscc.backends.artifact.files import Artifact, write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.backends.verify import verify_program
from wscc.backends.verify.routes import check_routes
from wscc.cli import main
from wscc.diagnostics import Source
from wscc.equivalence import check_semantics
from wscc.equivalence.recompile import differences
from wscc.ir.array import Init, Kind
from wscc.ir.routes import Leg, Route
from wscc.ir.streams.artifact import HostPart, HostTensor
from wscc.ir.streams.program import Instruction, Streams
from wscc.ir.streams.wsa import parse_wsa
from wscc.ir.text.parse import parse
from wscc.ir.text.print import to_text
from wscc.ir.types import DType, TensorType


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_is_right_in_structure_and_semantics(name: str) -> None:
    verdict = verify_program(program(name))
    assert verdict.ok, verdict.findings
    assert verdict.messages > 0
    assert bool(_local_routes(program(name))) == ("copies" in name)
    equivalence = check_semantics(program(name))
    assert equivalence.ran
    assert not equivalence.findings


def _local_routes(artifact: Artifact) -> list[Route]:
    return [r for r in artifact.streams.routes if r.legs and len(r.legs[0].path) == 1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_is_read_back_as_it_was_written(name: str, tmp_path: Path) -> None:
    write_artifact(tmp_path / "a", program(name))
    read = load_artifact(tmp_path / "a")
    assert read.streams.routes == program(name).streams.routes
    assert read.streams.programs == program(name).streams.programs


# ---- by hand


def by_hand(
    text: str, *, table: list[list[int]] | None = None, roles: tuple[int, ...] = (0, 0), given: int = 2048,
    routes: tuple[Route, ...] | None = None, **facts: Any,
) -> Artifact:  # fmt: skip
    """Dies in a row; the host fills bytes 1024 to 1024 + `given` of each with f32."""
    n = len(roles)
    programs, steps = parse_wsa(text)
    bindings = np.array(table if table is not None else [[]] * n, np.int64).reshape(n, -1)
    made = tuple(Route.along(straight(a, b, n)) for a in range(n) for b in range(n))
    streams = Streams(programs, steps, tuple(range(n)), roles, bindings, routes or made, ARENA)
    part = HostPart(-1, 0, 1, 1024, given)
    x = HostTensor("x", Kind.STATE, TensorType((given // 4,), DType.F32), (), Init("zeros"), (part,))
    tensors = facts.pop("tensors", (x,))
    facts = {"axes": (("x", n),), "stages": len(steps), "tensors": tensors, **facts}
    graph = gpt()
    in_f32 = replace(graph.train, compute=DType.F32, params=DType.F32, grads=DType.F32)
    return Artifact(streams, manifest(1, n, **facts), to_text(replace(graph, train=in_f32)))


def findings(artifact: Artifact) -> list[str]:
    return [str(f) for f in verify_program(artifact).findings]


def test_an_exchange_needs_one_slot() -> None:
    verdict = verify_program(by_hand(EXCHANGE, table=SWAP))
    assert verdict.ok, verdict.findings
    assert (verdict.min_slot_depth, verdict.messages, verdict.instructions, verdict.calls) == (1, 2, 5, 1)


ENDED = ' wait channel=0 side="sent"'


def pair(body: str, *peer: str) -> Artifact:
    """Die 0 runs `body`, die 1 the other half of an exchange."""
    return by_hand(one(body, *peer), roles=(0, 1))


def before(body: str) -> Artifact:
    """Die 0 runs `body` and then sends a message."""
    return pair(f"{body} {SENT}{ENDED}")


# Two kernels write the columns of a matrix of two rows.
COLUMNS = "fill f32[2,1;4,1]@0 value=1.0 fill f32[2,3;4,1]@4 value=1.0"


def test_what_is_changed_in_place_stays_whole() -> None:
    row = "add f32[4]@0 <- f32[4]@0, f32[4]@16"
    assert not any(
        "overwritten" in f for f in findings(before(f"{COLUMNS} {row} copy f32[8]@64 <- f32[8]@0"))
    )


def chain(body: str, between: str = "") -> Artifact:
    """Calls that hand four numbers on at 0, among their locals: the first writes them, two run `body`."""
    procedures = "procedure first(2) { copy f32[4]@a1 <- f32[4]@a0 }"
    other = "procedure other(0) { fill f32[4]@0 value=1.0 }" if between else ""
    return by_hand(
        f"role 0 {{ {procedures} procedure next(2) {{ {body} }} {other} }}"
        f" step {{ call first(1024, 0) call next(0, 0) {between} call next(0, 1040) }}",
        roles=(0,),
    )


TAKE, HAND = "copy f32[4]@16 <- f32[4]@a0", "add f32[4]@a1 <- f32[4]@16, f32[4]@16"


def test_what_is_handed_on_lies_among_the_locals_and_they_have_its_bytes_in_between() -> None:
    between = "fill f32[4]@0 value=1.0 add f32[4]@16 <- f32[4]@16, f32[4]@0"
    assert not findings(chain(f"{TAKE} {HAND}"))
    assert not findings(chain(f"{TAKE} {between} {HAND}"))


@pytest.mark.parametrize(
    ("artifact", "words"),
    [
        (
            chain(f"fill f32[4]@0 value=1.0 {TAKE} {HAND}"),
            "reads an argument whose bytes a local has overwritten",
        ),
        (
            chain(f"{TAKE} {HAND} copy f32[4]@16 <- f32[4]@0"),
            "reads as a local what was written to an argument",
        ),
        (chain(f"{TAKE} {HAND} fill f32[2]@8 value=1.0"), "hold nothing that was written for it"),
        (chain(f"{TAKE} {HAND}", "call other()"), "hold nothing that was written for it"),
    ],
)
def test_locals_may_not_have_the_bytes_of_what_is_handed_on(artifact: Artifact, words: str) -> None:
    assert any(words in f for f in findings(artifact)), findings(artifact)


MISTAKES: dict[str, tuple[Artifact, str]] = {
    "bytes": (
        pair(SENT + ENDED, 'post f32[3]@1024 channel=0 peer=0 wait channel=0 side="received"'),
        "sends 2 f32 on channel 0 to die (0, 1), whose slot is for 3 f32",
    ),
    "type": (
        pair(SENT + ENDED, 'post i32[2]@1024 channel=0 peer=0 wait channel=0 side="received"'),
        "sends 2 f32 on channel 0 to die (0, 1), whose slot is for 2 i32",
    ),
    "channel": (
        pair(SENT + ENDED, 'post f32[2]@1024 channel=1 peer=0 wait channel=1 side="received"'),
        "die (0, 0), `f` instruction 1: sends on channel 0 to die (0, 1), which grants no slot for it",
    ),
    "no send": (
        pair("fill f32[2]@0 value=1.0"),
        "die (0, 1), `f` instruction 0: grants a slot on channel 0 to die (0, 0), which sends nothing to it",
    ),
    "not waited for": (pair(SENT), "that is not waited for when the procedure ends"),
    "never begun": (pair('wait channel=0 side="sent"'), "waits on channel 0 for what was never"),
    "circle": (
        by_hand(
            EXCHANGE.replace('wait channel=0 side="received"', "").replace(
                "send <-", 'wait channel=0 side="received"\n send <-'
            ),
            table=SWAP,
        ),
        "dies wait in a circle: die (0, 0) at instruction 1 waits for die (0, 1) to send; die (0, 1) at "
        "instruction 1 waits for die (0, 0) to send",
    ),
    "slot read": (
        pair(POSTED + " copy f32[2]@64 <- f32[2]@0" + ' wait channel=0 side="received"', SENDER),
        "`x` reads a slot whose message has not been waited for",
    ),
    "slot overwritten": (
        pair(POSTED + " fill f32[2]@0 value=1.0" + ' wait channel=0 side="received"', SENDER),
        "`y` overwrites a slot that is granted to a message",
    ),
    "message overwritten": (
        pair(SENT + " fill f32[1]@4 value=2.0" + ENDED),
        "instruction 2: `y` overwrites bytes of a message that has not been waited for",
    ),
    "never written": (
        pair("copy f32[2]@8 <- f32[2]@0 " + SENT + ENDED),
        "instruction 0: `x` reads bytes from 0 on that nothing has written",
    ),
    "live buffers that share bytes": (
        before("fill f32[4]@0 value=1.0 fill f32[4]@8 value=1.0 copy f32[2]@64 <- f32[2]@0"),
        "instruction 2: `x` reads bytes from 0 on of a value that instruction 1 has overwritten in part",
    ),
    "a row of another value": (
        before(f"{COLUMNS} add f32[4]@0 <- f32[4]@16, f32[4]@16 copy f32[8]@64 <- f32[8]@0"),
        "instruction 3: `x` reads bytes from 16 on of a value that instruction 2 has overwritten in part",
    ),
    "another type": (
        before("fill f32[4]@0 value=1.0 add bf16[2]@64 <- bf16[2]@0, bf16[2]@0"),
        "`x` reads as bf16 what was written as f32",
    ),
    "written over": (
        before("fill f32[4]@0 value=1.0 copy f32[3]@4 <- f32[3]@0"),
        "`y` is written over `x`",
    ),
    "repeats": (
        before("fill f32[4;0]@0 value=1.0"),
        "`y` is written, and two elements of it share bytes",
    ),
    "integers": (before("fill i32[4]@0 value=1.0 copy f32[4]@32 <- i32[4]@0"), "`copy` from i32"),
    "flag": (
        before("gemm f32[4,4]@64 <- f32[4,4]@0, f32[4,4]@0 scale=1.0 accumulate=1"),
        "`gemm` has accumulate=1",
    ),
    "array never written": (
        by_hand(EXCHANGE.replace("(1024)", "(512)"), table=SWAP),
        "`swap`: reads bytes 512 to 528, which hold nothing that was written for it",
    ),
    "a call off its array": (
        by_hand(EXCHANGE.replace("(1024)", "(1016)"), table=SWAP),
        "reads bytes 1016 to 1024, which hold nothing",
    ),
    "an array in scratch": (
        by_hand(EXCHANGE.replace("@0 channel", "@1040 channel").replace("<- f32[4]@0", "<- f32[4]@1040"), table=SWAP),
        "the host reads `x` element 0, of which bytes 1040 to 3072 are not written",
    ),
    "virtual channel": (
        by_hand(EXCHANGE, table=SWAP, routes=(Route(()), Route.along((0, 1), 2), Route.along((1, 0)), Route(()))),
        "route 1 takes virtual channel 2 of links that have 2",
    ),
    "share": (
        by_hand(EXCHANGE, table=SWAP, routes=(Route(()), Route((Leg((0, 1), 0, 0),)), Route.along((1, 0)), Route(()))),
        "route 1 has a leg with a share of 0",
    ),
    "no link": (
        by_hand(EXCHANGE, table=SWAP, routes=(Route(()), Route.along((0, 0, 1)), Route.along((1, 0)), Route(()))),
        "route 1 takes (0, 0) - (0, 0), which is no link of the wafer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_place(name: str) -> None:
    artifact, words = MISTAKES[name]
    found = findings(artifact)
    assert any(words in f for f in found), found


def test_host_arrays_do_not_share_bytes_nor_are_read_as_one() -> None:
    def tensor(name: str, address: int) -> HostTensor:
        part = HostPart(-1, 0, 1, address, 8)
        return HostTensor(name, Kind.STATE, TensorType((2,), DType.F32), (), Init("zeros"), (part,))

    both = by_hand(EXCHANGE, table=SWAP, tensors=(tensor("x", 1024), tensor("y", 1032)))
    words = "reads bytes 1024 to 1040 as one, which are of `x` element 0 and `y` element 0"
    assert any(words in f for f in findings(both))
    shared = by_hand(EXCHANGE, table=SWAP, tensors=(tensor("x", 1024), tensor("y", 1028)))
    assert any("`y` element 0 shares bytes with `x` element 0" in f for f in findings(shared))


def test_stages_that_never_meet_are_named() -> None:
    """Two procedures in which both stages meet, made in another order by each."""
    parts = [
        f"procedure {name}(0) {{ fill f32[1]@0 value=1.0 send <- f32[1]@0 channel=0 peer={{peer}} route={{route}} "
        f'post f32[1]@64 channel=0 peer={{peer}} wait channel=0 side="sent" wait channel=0 side="received" }}'
        for name in ("f", "g")
    ]
    roles = "".join(
        f"role {r} stage {r} {{ {' '.join(parts)} }}".replace("{peer}", str(1 - r)).replace(
            "{route}", str(1 + r)
        )
        for r in (0, 1)
    )
    right = roles + "step { call f() call g() } step { call f() call g() }"
    wrong = roles + "step { call f() call g() } step { call g() call f() }"
    assert not findings(by_hand(right, roles=(0, 1)))
    (found,) = findings(by_hand(wrong, roles=(0, 1)))
    assert "stages never meet: stage 0 in `f` waits for stage 1; stage 1 in `g` waits for stage 0" in found


def test_routes_that_wait_in_a_circle_are_named() -> None:
    """Four messages round four dies: each holds the link that the one before it wants."""
    square = [(0, 1, 3), (1, 3, 2), (3, 2, 0), (2, 0, 1)]
    (circle,) = check_routes([Route.along(p) for p in square], 2, 2)
    assert (
        "messages may wait in a circle on virtual channel 0: (0, 0) - (0, 1), (0, 1) - (1, 1)"
        in circle.message
    )
    assert not list(check_routes([Route.along(p, i % 2) for i, p in enumerate(square)], 2, 2))
    tree = [replace(Route.along(p), merged=0) for p in ((0, 1, 3), (0, 2, 3))]
    (found,) = check_routes(tree, 2, 2)
    assert "enters die (1, 1) by two links" in found.message


def test_merged_routes_carry_the_same_bytes_all_together() -> None:
    """Die 0 sends to die 1 over a tree that also leads to die 2, and to die 2 over it or not at all."""
    to_one = "fill f32[2]@0 value=1.0 send <- f32[2]@0 channel=0 peer=1 route=0"
    to_two = " send <- f32[2]@0 channel=1 peer=2 route=1"
    slots = [f'post f32[2]@0 channel={c} peer=0 wait channel={c} side="received"' for c in (0, 1)]
    tree = (Route.along((0, 1)), Route.along((0, 1, 2)))
    routes = tuple(replace(r, merged=0) for r in tree)

    def sent(body: str, *bodies: str) -> Artifact:
        roles = (f"role {i} {{ procedure f(0) {{ {text} }} }}" for i, text in enumerate((body, *bodies)))
        return by_hand(" ".join([*roles, "step { call f() }"]), roles=(0, 1, 2), routes=routes)

    both = sent(to_one + to_two + ENDED + ENDED.replace("=0", "=1"), *slots)
    assert not findings(both)
    (found,) = findings(sent(to_one + ENDED, slots[0], ""))
    assert "die (0, 0), `f`: does not send the same bytes over all of the merged routes [0, 1]" in found


# ---- the depth of slots, by an oracle that runs the step with few of them


@pytest.mark.parametrize("name", ["tatp=4", "pp=2 sp=2"])
def test_the_smallest_slot_depth_suffices_and_one_less_does_not(name: str) -> None:
    depth = verify_program(program(name)).min_slot_depth
    assert depth
    assert ends_with(program(name), depth)
    assert not ends_with(program(name), depth - 1)


# ---- corruptions


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_a_corruption_is_caught_or_changes_no_bit(kind: str) -> None:
    """One of each kind; `make fuzz-verify` draws a thousand."""
    name = ("pp=2 sp=2", "tatp=4")[list(CORRUPTIONS).index(kind) % 3 == 0]
    caught = caught_by(name, corrupted(program(name), kind, Random(kind)))
    assert not caught.startswith("missed"), caught


def test_a_program_too_large_to_run_is_compared_with_its_graph() -> None:
    right = program("pp=2 sp=2")
    graph = parse(Source("graph.wir", right.graph))
    assert not list(differences(right, graph))
    assert list(differences(corrupted(right, "flag", Random(0)), graph))


@pytest.mark.parametrize("level", [0, 1])
def test_a_program_of_any_level_is_compared_with_its_graph_at_that_level(level: int) -> None:
    """Above level 1 this one has copies in SRAM."""
    (name,) = (name for name in PROGRAMS if "copies" in name)
    graph = parse(Source("graph.wir", program(name).graph))
    assert not list(differences(artifact_of(graph, level), graph))


def test_the_part_of_lr_schedule_that_two_steps_do_not_reach_is_compared() -> None:
    def later(x: Instruction) -> Instruction:
        return replace(x, attrs=tuple((n, 0.5 if n == "floor" else v) for n, v in x.attrs))

    right = program("tatp=4")
    programs = tuple(
        replace(p, procedures=tuple(replace(c, body=tuple(map(later, c.body))) for c in p.procedures))
        for p in right.streams.programs
    )
    broken = replace(right, streams=replace(right.streams, programs=programs))
    (first, *_) = check_semantics(broken).findings
    assert "`adamw` has floor=0.5, and the graph 0.0" in first.message


# ---- the command


def test_the_command_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = program("tatp=4")
    write_artifact(tmp_path / "right", right)
    assert main(["verify", str(tmp_path / "right"), "--semantics"]) == 0
    with_option = capsys.readouterr().out
    assert main(["verify", str(tmp_path / "right"), "--meaning"]) == 0  # the old name of the option
    assert "equal to one device" in with_option
    assert "run in f64, equal to one device" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "right"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"ok": True, "findings": [], "min_slot_depth": verify_program(right).min_slot_depth}
    write_artifact(tmp_path / "wrong", corrupted(right, "channel", Random(0)))
    assert main(["verify", str(tmp_path / "wrong"), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    assert said["min_slot_depth"] is None
    assert set(said["findings"][0]) == {"check", "message", "die", "procedure", "instruction"}
    assert main(["verify", str(tmp_path / "wrong")]) == 1
    assert "messages: die (" in capsys.readouterr().out
