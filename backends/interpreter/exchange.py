"""Memory that worker processes share: the arenas of the dies, and a table of the messages between workers.

For every channel between dies of two workers there is a row in which the side that comes first leaves a description
of its array; the side that comes second takes it, copies, and notifies the other's worker. One lock guards the table,
and also orders memory between processors; a semaphore for each worker counts its notifications.
"""

from __future__ import annotations

import mmap
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

# Polls before a worker sleeps: to be woken takes longer than most messages do.
_POLLS: Final = 400

_RESTING, _OVER, _FIRST = 0, 1, 2
_DTYPES: Final = tuple(DType)


@dataclass
class Exchange:
    """The table of messages between workers. `workers[i]` runs die i; `keys` are the channels between dies of
    different workers, `rank` is the largest rank of their arrays. It is made before the workers are forked; each
    then sets `me`."""

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
        self.lock: Lock = context.Lock()
        self.bells: list[Semaphore] = [context.Semaphore(0) for _ in range(count)]
        # Before the rings, for each worker: the number of notifications to it, and of those that it took.
        self.rings = _FIRST + 2 * count
        self.rows = self.rings + count * len(self.keys)
        size = self.rows + len(self.keys) * self.width
        self.cells = memoryview(mmap.mmap(-1, 8 * size)).cast("q")

    def begin(self) -> None:
        """Reset the state before a step, while no worker runs: without the lock, which a killed worker may hold."""
        self.cells[_RESTING] = self.cells[_OVER] = 0

    def meet(self, number: int, view: memoryview) -> bytes | None:
        """The description that the other end of channel `number` has left; if None, `view` is left for it."""
        row = self.rows + number * self.width
        with self.lock:
            if self.cells[row]:
                description = self.cells[row : row + self.width].tobytes()
                self.cells[row] = 0
                return description
            self.cells[row : row + self.width] = view
            return None

    def tell(self, number: int) -> None:
        """Notify the worker of the other end that the message of channel `number` is complete."""
        a, b = (self.workers[die] for die in self.keys[number][:2])
        worker = b if a == self.me else a
        counter = _FIRST + 2 * worker
        with self.lock:
            n = self.cells[counter]
            self.cells[self.rings + worker * len(self.keys) + n % len(self.keys)] = number
            self.cells[counter] = n + 1
        self.bells[worker].release()

    def poll(self) -> int | None:
        """The channel of a message that another worker has completed, or None."""
        if not self.bells[self.me].acquire(block=False):
            return None
        with self.lock:
            return self._take()

    def rest(self) -> int | None:
        """Wait for a message completed by another worker; None when all workers rest and none is in flight."""
        for _ in range(_POLLS):
            if (number := self.poll()) is not None:
                return number
        if self._is_over():
            for worker, bell in enumerate(self.bells):
                if worker != self.me:
                    bell.release()
            return None
        self.bells[self.me].acquire()
        with self.lock:
            if self.cells[_OVER]:
                return None
            self.cells[_RESTING] -= 1
            return self._take()

    def _is_over(self) -> bool:
        """Count this worker as resting; True if all rest and every notification has been taken."""
        with self.lock:
            self.cells[_RESTING] += 1
            counts = self.cells[_FIRST : self.rings]
            over = self.cells[_RESTING] == len(self.bells) and counts[::2].tolist() == counts[1::2].tolist()
            self.cells[_OVER] = over
            return over

    def _take(self) -> int:
        """The channel of the oldest notification of this worker."""
        counter = _FIRST + 2 * self.me + 1
        n = self.cells[counter]
        self.cells[counter] = n + 1
        return self.cells[self.rings + self.me * len(self.keys) + n % len(self.keys)]

    def describe(
        self, address: int, sizes: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]
    ) -> memoryview:
        """The description of an array in a die's memory, as the words of a row; strides in bytes."""
        number = _DTYPES.index(DType.of(dtype))
        words = (1, address, number, len(sizes), *sizes, *strides)
        return memoryview(array("q", (*words, *[0] * (self.width - len(words)))))


def described(words: bytes, arena: memoryview) -> NDArray[Any]:
    """The array that `words` describe, in the arena of its die."""
    _, address, number, rank, *rest = np.frombuffer(words, np.int64).tolist()
    sizes, strides = rest[:rank], rest[rank : 2 * rank]
    return np.ndarray(sizes, _DTYPES[number].numpy, arena, address, strides)


_ALIGNED = 64


def arenas(count: int, size: int) -> NDArray[np.uint8]:
    """`count` rows of at least `size` bytes, zero and 64-byte aligned; `CompileError` W401 if there is no such
    memory."""
    stride = -(-size // _ALIGNED) * _ALIGNED
    try:
        memory = mmap.mmap(-1, max(1, count * stride))
    except (OSError, OverflowError, ValueError) as error:
        raise fail(
            Code.OUT_OF_MEMORY, f"this computer gives no {count * stride} bytes for {count} dies"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults and misses of the address cache
    return np.frombuffer(memory, np.uint8)[: count * stride].reshape(count, stride)
