"""The interpreter: runs the streams of a program on numbers, with one byte arena per die and messages between."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.binding import DieMemory
from wscc.backends.interpreter.blas import limit_blas_to_one_thread
from wscc.backends.interpreter.checked import Shadow
from wscc.backends.interpreter.dies import Dies, deal, exchange_of
from wscc.backends.interpreter.engine import settle
from wscc.backends.interpreter.exchange import Exchange, arenas
from wscc.backends.interpreter.load_checks import (
    check_computer,
    check_dies,
    die_name,
    loaded,
)
from wscc.backends.interpreter.origins import NO_CHANGES, GraphTypes
from wscc.ir.routes import crossings
from wscc.ir.streams.artifact import HostPart, Manifest
from wscc.ir.streams.program import Streams, dynamic_calls, stage_of_role
from wscc.workers import Answers, Workers, can_fork


@dataclass(slots=True)
class Machine:
    """The dies of a program, loaded and ready to step.

    `checked` poisons memory that nothing has written, and refuses reads of it and accesses that conflict with a
    message in flight, and numbers that are rounded too often: those whose type changes as it does not in the graph
    (`types`; None: they may). `threads` is the number of processes that share the dies; in checked mode, and where the
    system cannot fork, the caller's own process runs them all.

    `CompileError`: W501 if the program does not fit itself or the wafer (at load) or an instruction cannot be
    executed, W401 if this computer cannot hold the dies, W502 if dies wait for one another, W504 if a check
    fails, W506 if a process ends. After an error in `run_step` the machine is of no more use.
    """

    streams: Streams
    manifest: Manifest
    threads: int = 1
    checked: bool = False
    types: GraphTypes | None = NO_CHANGES
    _arenas: NDArray[np.uint8] = field(init=False, repr=False)
    _memories: list[DieMemory] = field(init=False, repr=False)
    _shadows: list[Shadow] = field(init=False, repr=False)
    _dies: Dies = field(init=False, repr=False)
    _exchange: Exchange | None = field(init=False, repr=False, default=None)
    _workers: Workers | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        limit_blas_to_one_thread()
        streams, manifest, dies = self.streams, self.manifest, len(self.streams.dies)

        # Not a method: a machine that nobody uses goes at once, so nothing that it holds may hold it.
        def name(die: int) -> str:
            return die_name(streams.dies[die], manifest)

        check_dies(streams, manifest)
        check_computer(streams, shadows=self.checked)
        routines = loaded(streams, manifest)
        steps = [list(dynamic_calls(step)) for step in streams.steps]
        stages = stage_of_role(streams)
        self._arenas = arenas(dies, streams.arena_bytes)
        self._memories = [
            DieMemory(arena[: streams.arena_bytes], tuple(row.tolist()))
            for arena, row in zip(self._arenas, streams.bindings, strict=True)
        ]
        self._shadows = [Shadow(m, self.types) for m in self._memories] if self.checked else []
        calls_of = [steps[stages[role]] for role in streams.roles]
        self._dies = Dies(streams, calls_of, routines, self._memories, self._shadows, name)

    def run_step(self) -> None:
        """Execute the step once on every die."""
        count = 1 if self.checked or not can_fork() else min(self.threads, len(self._memories))
        if self._workers is None and count > 1:
            self._start(count)
        if self._workers is None or self._exchange is None:
            settle([self._dies.run_step()], self.die_name)
        else:
            self._exchange.begin()
            settle(self._workers.ask("step", "running a step"), self.die_name)

    def _start(self, count: int) -> None:
        """Fork the processes that run the dies from now on."""
        streams, routines = self.streams, self._dies.routines
        exchange = self._exchange = exchange_of(
            streams, routines, deal(len(streams.dies), self.manifest.stages, count)
        )

        def answers(me: int) -> Answers:
            exchange.me = me
            dies = replace(self._dies, exchange=exchange)
            return {"step": dies.run_step, "sent": lambda: dies.sent, "highest": dies.highest}

        self._workers = Workers(count, answers, alone="--threads 1")

    def close(self) -> None:
        """End the processes that run the dies, if there are any; the memory of the dies can still be read."""
        if self._workers is not None:
            self._workers.close()

    def die_name(self, die: int) -> str:
        """The position of a logical die on the wafer, `(row, column)`."""
        return die_name(self.streams.dies[die], self.manifest)

    def store(self, die: int, address: int, value: NDArray[np.generic], *, data: bool = False) -> None:
        """Write an array of the host, contiguous, into the memory of a logical die; address in bytes. `data`: it is
        of a batch."""
        value = np.ascontiguousarray(value)
        memory = self._memories[die]
        memory.arena[address : address + value.nbytes] = value.reshape(-1).view(np.uint8)
        memory.highest = max(memory.highest, address + value.nbytes)
        if self.checked:
            self._shadows[die].store(address, value.nbytes, data=data)

    def load(
        self, die: int, address: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> NDArray[np.generic]:
        """A copy of a contiguous array in the memory of a logical die; W504 in checked mode if it is unwritten."""
        view: NDArray[np.generic] = np.ndarray(shape, dtype, self._memories[die].arena.data, address)
        if self.checked:
            self._shadows[die].load(address, view.nbytes)
        return view.copy()

    def view(
        self, dies: range, part: HostPart, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> NDArray[np.generic]:
        """The memory itself of elements of `shape` in consecutive dies: `[dies, part.count, *shape]`."""
        element = np.empty((0, *shape), dtype).strides[1:]
        row = self._arenas.shape[1]
        sizes, strides = (len(dies), part.count, *shape), (row, part.stride, *element)
        return np.ndarray(sizes, dtype, self._arenas.data, dies.start * row + part.address, strides)

    def is_written(self, die: int, address: int, size: int) -> bool:
        """False if checked mode knows that nothing has written some of these bytes."""
        return not self.checked or self._shadows[die].is_written(address, size)

    def traffic(self) -> dict[tuple[int, int], int]:
        """Bytes carried so far by each link that carried any: (physical die, its neighbour), one way."""
        links: dict[tuple[int, int], int] = {}
        crossed = crossings(self.streams.routes)
        for sent in self._answers("sent", self._dies.sent):
            for (route, amount), times in chain.from_iterable(counts.items() for counts in sent):
                parts = self.streams.routes[route].parts(amount)
                for leg, link in crossed[route] if times else ():
                    links[link] = links.get(link, 0) + parts[leg] * times
        return dict(sorted(links.items()))

    def peak_bytes(self) -> tuple[int, ...]:
        """One past the highest byte that an executed instruction or the host wrote, for each logical die."""
        highest = self._dies.highest()
        return tuple(map(max, zip(highest, *self._answers("highest", highest), strict=True)))

    def _answers(self, question: str, local: Any) -> list[Any]:
        """The answers of all workers to a question, or `local` if this process runs the dies."""
        return [local] if self._workers is None else self._workers.ask(question, "counting bytes")
