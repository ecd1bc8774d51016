"""What processes that run dies of one machine share beside the memory of the dies: messages that cross between them.

For every channel between dies of two workers there is a row in which the side that comes first leaves a description
of its array; the side that comes second takes it, copies, and tells the other's worker. All of it lies under one lock,
which also orders memory between processors; a semaphore for each worker counts what it has been told.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.synchronize import Lock, Semaphore
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.ir.types import DType

# (sender, receiver, channel)
Key = tuple[int, int, int]

# Looks for news before a worker sleeps: to be woken takes longer than most messages do.
_LOOKS: Final = 400
_ORPHAN_SECONDS: Final = 1.0

_RESTING, _OVER, _FIRST = 0, 1, 2
_DTYPES: Final = tuple(DType)


@dataclass
class Exchange:
    """`workers[i]` runs die i; `keys` are the channels between dies of different workers, `rank` is the largest of
    their arrays. It is made before the workers are forked; each then sets `me`."""

    keys: Sequence[Key]
    workers: Sequence[int]
    rank: int
    me: int = -1
    numbers: dict[Key, int] = field(init=False)

    def __post_init__(self) -> None:
        context = get_context("fork")
        count = max(self.workers) + 1
        self.numbers = {key: i for i, key in enumerate(self.keys)}
        self.width = 4 + 2 * self.rank
        self.parent = os.getpid()
        self.lock: Lock = context.Lock()
        self.bells: list[Semaphore] = [context.Semaphore(0) for _ in range(count)]
        self.rings = _FIRST + 2 * count  # before them, by worker: how much it was told, how much it took
        self.rows = self.rings + count * len(self.keys)
        size = self.rows + len(self.keys) * self.width
        self.cells = memoryview(mmap.mmap(-1, 8 * size)).cast("q")

    def begin(self) -> None:
        """Before each step, while no worker runs (so without the lock, which a worker that was killed may hold)."""
        self.cells[_RESTING] = self.cells[_OVER] = 0

    def meet(self, number: int, view: memoryview) -> bytes | None:
        """What the other end has left, or None: then `view` is left for it."""
        at = self.rows + number * self.width
        with self.lock:
            if self.cells[at]:
                found = self.cells[at : at + self.width].tobytes()
                self.cells[at] = 0
                return found
            self.cells[at : at + self.width] = view
            return None

    def tell(self, number: int) -> None:
        """The message is complete: the worker of its other end shall know."""
        a, b = (self.workers[die] for die in self.keys[number][:2])
        worker = b if a == self.me else a
        told = _FIRST + 2 * worker
        with self.lock:
            n = self.cells[told]
            self.cells[self.rings + worker * len(self.keys) + n % len(self.keys)] = number
            self.cells[told] = n + 1
        self.bells[worker].release()

    def poll(self) -> int | None:
        """A message completed by another worker, if there is one."""
        if not self.bells[self.me].acquire(block=False):
            return None
        with self.lock:
            return self._take()

    def rest(self) -> int | None:
        """Wait for a message completed by another worker; None when all workers rest and none is on its way."""
        for _ in range(_LOOKS):
            if (number := self.poll()) is not None:
                return number
        if self._is_over():
            for worker, bell in enumerate(self.bells):
                if worker != self.me:
                    bell.release()
            return None
        while not self.bells[self.me].acquire(timeout=_ORPHAN_SECONDS):
            if os.getppid() != self.parent:
                os._exit(1)
        with self.lock:
            if self.cells[_OVER]:
                return None
            self.cells[_RESTING] -= 1
            return self._take()

    def _is_over(self) -> bool:
        """Rest; whether this was the last worker to do so."""
        with self.lock:
            self.cells[_RESTING] += 1
            counts = self.cells[_FIRST : self.rings]
            over = self.cells[_RESTING] == len(self.bells) and counts[::2].tolist() == counts[1::2].tolist()
            self.cells[_OVER] = over
            return over

    def _take(self) -> int:
        taken = _FIRST + 2 * self.me + 1
        n = self.cells[taken]
        self.cells[taken] = n + 1
        return self.cells[self.rings + self.me * len(self.keys) + n % len(self.keys)]

    def describe(
        self, address: int, sizes: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]
    ) -> memoryview:
        """An array in a die's memory in the words of a row."""
        number = next(i for i, d in enumerate(_DTYPES) if d.numpy == dtype)
        words = (1, address, number, len(sizes), *sizes, *strides)
        return memoryview(array("q", (*words, *[0] * (self.width - len(words)))))


def described(words: bytes, arena: memoryview) -> NDArray[Any]:
    """The array that the words stand for, in the arena of the die that described it."""
    _, address, number, rank, *rest = np.frombuffer(words, np.int64).tolist()
    sizes, strides = rest[:rank], rest[rank : 2 * rank]
    return np.ndarray(sizes, _DTYPES[number].numpy, arena, address, strides)


_ALIGNED = 64


def arenas(count: int, size: int) -> list[NDArray[np.uint8]]:
    """`count` arrays of `size` bytes, zero and 64-byte aligned; `CompileError` W401 if there is no such memory."""
    room = -(-size // _ALIGNED) * _ALIGNED
    try:
        memory = mmap.mmap(-1, max(1, count * room))
    except (OSError, OverflowError, ValueError) as error:
        raise fail(
            Code.OUT_OF_MEMORY, f"this computer gives no {count * room} bytes for {count} dies"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults and misses of the address cache
    whole = np.frombuffer(memory, np.uint8)
    return [whole[i * room : i * room + size] for i in range(count)]
