"""Execution of the messages of a step on dies that can grant few slots at once; code of its own."""

from __future__ import annotations

from wscc.backends.artifact.files import Artifact
from wscc.ir.streams.program import Column, Instruction, dynamic_calls, stage_of_role


def ends_with(artifact: Artifact, depth: int) -> bool:
    """Whether all dies finish the step if `post` waits for one of the `depth` slots of its die."""
    s = artifact.streams
    stages, codes = stage_of_role(s), {p.role: {c.name: c.body for c in p.procedures} for p in s.programs}

    def lines(die: int) -> list[Instruction]:
        calls = dynamic_calls(s.steps[stages[s.roles[die]]])
        return [
            x for name, _ in calls for x in codes[s.roles[die]][name] if x.opcode in ("post", "send", "wait")
        ]

    def number(die: int, x: Instruction, name: str) -> int:
        value = x.attr(name)
        return int(s.bindings[die, value.index]) if isinstance(value, Column) else int(str(value))

    programs = [lines(die) for die in range(len(s.dies))]
    pc, free = [0] * len(programs), [depth] * len(programs)
    slots: dict[tuple[int, int, int], int] = {}
    sent: dict[tuple[int, int, int], int] = {}
    peers: dict[tuple[int, int, str], int] = {}
    progress = True
    while progress:
        progress = False
        for die, program in enumerate(programs):
            while pc[die] < len(program):
                x = program[pc[die]]
                channel = number(die, x, "channel")
                if x.opcode == "post":
                    if not free[die]:
                        break
                    free[die] -= 1
                    peers[die, channel, "received"] = peer = number(die, x, "peer")
                    slots[peer, die, channel] = slots.get((peer, die, channel), 0) + 1
                elif x.opcode == "send":
                    peers[die, channel, "sent"] = peer = number(die, x, "peer")
                    sent[die, peer, channel] = sent.get((die, peer, channel), 0) + 1
                else:
                    side = str(x.attr("side"))
                    peer = peers[die, channel, side]
                    key = (die, peer, channel) if side == "sent" else (peer, die, channel)
                    own_counts, peer_counts = (sent, slots) if side == "sent" else (slots, sent)
                    if peer_counts.get(key, 0) < own_counts[key]:
                        break
                    free[die] += side == "received"
                pc[die] += 1
                progress = True
    return all(pc[die] == len(program) for die, program in enumerate(programs))
