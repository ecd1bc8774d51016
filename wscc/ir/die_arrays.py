"""Conversions between `Ints` and NumPy arrays, which hold all dies at once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wscc.ir.per_die import NOBODY, Ints, PerDie, per_die

DieArray = NDArray[np.int64]


@lru_cache(maxsize=8192)
def as_array(ints: Ints, dies: int) -> DieArray:
    """One integer for each logical die; read-only, because equal arguments share one array."""
    array = np.asarray(ints.values, np.int64) if isinstance(ints, PerDie) else np.full(dies, ints, np.int64)
    assert array.shape == (dies,), f"{array.shape[0]} values for {dies} dies"
    array.flags.writeable = False
    return array


def as_ints(array: NDArray[np.generic]) -> Ints:
    """The inverse of `as_array`: a plain integer where all dies agree."""
    return per_die(array.tolist())


@lru_cache(maxsize=8192)
def senders(to: Ints, dies: int) -> Ints:
    """The sender of each receiver, where die i sends to `to[i]`; `NOBODY` on dies that none sends to."""
    target = as_array(to, dies)
    sending = np.flatnonzero(target != NOBODY)
    by_receiver = np.full(dies, NOBODY, np.int64)
    by_receiver[target[sending]] = sending
    return as_ints(by_receiver)


@lru_cache(maxsize=8192)
def present(peers: Ints, dies: int) -> Ints:
    """1 on the dies that have a peer, 0 where it is `NOBODY`."""
    return as_ints((as_array(peers, dies) != NOBODY).astype(np.int64))
