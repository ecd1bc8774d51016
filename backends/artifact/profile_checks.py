"""A check of profile.json: its numbers are those of its own lists, and its procedures those of the programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wscc.backends.artifact.mistake import Mistake
from wscc.ir.streams.profile import Profile
from wscc.ir.streams.program import Streams

FILE: Final = "profile.json"


def check_profile(profile: Profile, streams: Streams) -> None:
    """Raise `Mistake` where a profile does not fit itself or the programs."""
    for words in _mistakes(profile, streams):
        raise Mistake(FILE, words)


def _mistakes(profile: Profile, streams: Streams) -> Iterator[str]:
    known = {c.name for p in streams.programs for c in p.procedures}
    origins, roles = len(profile.origins), len(profile.roles)
    seen: set[str] = set()
    for n, p in enumerate(profile.procedures):
        place = f"`procedures[{n}]`"
        if p.name not in known or p.name in seen:
            yield f"{place} is of `{p.name[:40]}`, which is no procedure of programs.wsa, or twice there"
        seen.add(p.name)
        if len(p.kernels) != len(p.executed):
            yield f"{place} has {len(p.kernels)} `kernels` and {len(p.executed)} `executed`"
        if max((*p.channels, *p.kernels), default=-1) >= origins:
            yield f"{place} names an origin beyond the {origins} of `origins`"
        if max(p.executed, default=-1) >= roles:
            yield f"{place} names a set of roles beyond the {roles} of `roles`"
