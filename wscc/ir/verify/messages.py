"""The check of the messages of one procedure: its transfers or, after `schedule`, the post, send and waits of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from wscc.ir.die_arrays import as_array, present, senders
from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.verify.finding import Findings, Place
from wscc.ir.verify.routes import Paths
from wscc.ir.verify.views import Mask, Views, wrong_ints, wrong_mask
from wscc.ir.views import View


@dataclass(slots=True)
class _Channel:
    """The statements of one message so far; `waited` has the sides (sent: True) that were waited for."""

    post: Post | None = None
    send: Send | None = None
    waited: set[bool] = field(default_factory=set)
    waits: list[Wait] = field(default_factory=list)


@dataclass(slots=True)
class Messages:
    """The checks of the statements of a procedure, in order, and `unfinished` at its end; it has `count` transfers."""

    views: Views
    paths: Paths
    procedure: str
    count: int
    _channels: dict[int, _Channel] = field(default_factory=dict)
    _transfers: set[int] = field(default_factory=set)
    _contents: dict[str, View] = field(default_factory=dict)

    def transfer(self, t: Transfer) -> Findings:
        """The mistakes of a transfer."""
        place = self._place("transfer", t)
        if t.channel in self._transfers:
            yield place.wrong("another transfer has its channel")
        self._transfers.add(t.channel)
        if not -1 <= t.phase < self.count:
            yield place.wrong(
                f"there is no phase {t.phase}: {self.count} transfers have as many phases at most"
            )
        if t.content and self._contents.setdefault(t.content, t.read) != t.read:
            yield place.wrong(f"others send different bytes as content `{t.content}`")
        if wrong := _wrong_permutation(t.to, self.views.dies) or wrong_ints(t.route, self.views.dies):
            yield place.wrong(wrong)
            return
        yield from self._moved(place, t.to, t.read, t.write)
        if t.route != NOBODY or len(self.paths.first) or t.one_hop:
            yield from self.paths.check(place, t.to, t.route, one_hop=t.one_hop)

    def statement(self, stmt: FabricStmt) -> Findings:
        """The mistakes of a post, send or wait by itself."""
        assert not isinstance(stmt, Kernel | Transfer)
        word = {Post: "post", Send: "send", Wait: "wait"}[type(stmt)]
        place = self._place(word, stmt)
        if stmt.channel in self._transfers:
            yield place.wrong("a transfer has its channel")
        channel = self._channels.setdefault(stmt.channel, _Channel())
        match stmt:
            case Post():
                if channel.post is not None:
                    yield place.wrong("the channel is posted twice")
                channel.post = stmt
            case Send():
                if channel.send is not None:
                    yield place.wrong("the channel is sent twice")
                channel.send = stmt
            case Wait():
                yield from self._wait(place, channel, stmt)

    def _wait(self, place: Place, channel: _Channel, wait: Wait) -> Findings:
        side, before = ("sent", channel.send) if wait.sent else ("received", channel.post)
        if wait.sent in channel.waited:
            yield place.wrong(f"it is waited for twice until {side}")
        channel.waited.add(wait.sent)
        channel.waits.append(wait)
        if before is None:
            yield place.wrong(f"it waits until {side} before its {'send' if wait.sent else 'post'}")
            return
        peers = before.to if isinstance(before, Send) else before.sender
        if wrong := wrong_ints(peers, self.views.dies) or wrong_mask(wait.where, self.views.dies):
            yield place.wrong(wrong)
        elif present(peers, self.views.dies) != wait.where:
            yield place.wrong(f"it does not wait until {side} on exactly the dies that have a peer")

    def unfinished(self) -> Findings:
        """The mistakes of messages that lack one of their four statements, or whose statements do not agree."""
        for c in self._channels.values():
            place = self._place("message", c.send or c.post or c.waits[0])
            if c.post is None or c.send is None:
                yield place.wrong(f"it is never {'posted' if c.post is None else 'sent'}")
                continue
            for sent in (False, True):
                if sent not in c.waited:
                    yield place.wrong(f"nothing waits until it is {'sent' if sent else 'received'}")
            yield from self._agreement(place, c.post, c.send)

    def _agreement(self, place: Place, post: Post, send: Send) -> Findings:
        dies = self.views.dies
        if (
            wrong := _wrong_permutation(send.to, dies)
            or wrong_ints(send.route, dies)
            or wrong_ints(post.sender, dies)
        ):
            yield place.wrong(wrong)
            return
        if senders(send.to, dies) != post.sender:
            yield place.wrong("its post does not expect the dies that send to it")
            return
        yield from self._moved(place, send.to, send.read, post.write)
        yield from self.paths.check(place, send.to, send.route, one_hop=False)
        if not len(self.paths.first) and send.to != NOBODY:
            yield place.wrong("it is sent, and the module has no routes")

    def _moved(self, place: Place, to: Ints, read: View, write: View) -> Findings:
        if (read.elements, read.dtype) != (write.elements, write.dtype):
            sides = [f"{v.elements} {v.dtype} of `%{v.buffer}`" for v in (read, write)]
            yield place.wrong(f"{sides[0]} go to {sides[1]}")
        sending, receiving = _sides(to, self.views.dies)
        yield from self.views.check(place, read, sending, is_written=False)
        yield from self.views.check(place, write, receiving, is_written=True)

    def _place(self, word: str, stmt: Transfer | Post | Send | Wait) -> Place:
        return Place(f"{word} {stmt.channel} in `@{self.procedure}`", stmt.span)


# The messages of a module have few peers and routes, each of them many times.
@lru_cache(maxsize=1024)
def _sides(to: Ints, dies: int) -> tuple[Mask, Mask]:
    """The dies that send, and those that receive."""
    target = as_array(to, dies)
    receiving = np.zeros(dies, np.bool_)
    receiving[target[target != NOBODY]] = True
    return target != NOBODY, receiving


@lru_cache(maxsize=1024)
def _wrong_permutation(to: Ints, dies: int) -> str | None:
    """Two senders to one die, a receiver that is none, or only some of the senders send to themselves."""
    if wrong := wrong_ints(to, dies):
        return wrong
    target = as_array(to, dies)
    receivers = target[target != NOBODY]
    if ((receivers < 0) | (receivers >= dies)).any():
        return f"it goes to a die beyond the {dies} of the module"
    if len(np.unique(receivers)) != len(receivers):
        return "two dies send to one die"
    if len({*(target == np.arange(dies))[target != NOBODY].tolist()}) > 1:
        return "a die sends to itself, and others do not"
    return None
