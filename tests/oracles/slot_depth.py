"""Whether a step ends on dies that can grant few slots at once, by running its messages; code of its own."""

from __future__ import annotations

from wscc.backends.artifact.files import Artifact
from wscc.ir.streams.program import Column, Instruction, dynamic_calls, stage_of_role


def ends_with(artifact: Artifact, depth: int) -> bool:
    """Whether all dies get through the step where `post` waits for one of `depth` slots of its die."""
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

    todo = [lines(die) for die in range(len(s.dies))]
    at, free = [0] * len(todo), [depth] * len(todo)
    slots: dict[tuple[int, int, int], int] = {}
    sent: dict[tuple[int, int, int], int] = {}
    peers: dict[tuple[int, int, str], int] = {}
    moved = True
    while moved:
        moved = False
        for die, mine in enumerate(todo):
            while at[die] < len(mine):
                x = mine[at[die]]
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
                    mine_done, theirs = (sent, slots) if side == "sent" else (slots, sent)
                    if theirs.get(key, 0) < mine_done[key]:
                        break
                    free[die] += side == "received"
                at[die] += 1
                moved = True
    return all(at[die] == len(mine) for die, mine in enumerate(todo))
