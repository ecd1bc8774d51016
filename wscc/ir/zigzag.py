"""Zigzag order of a sequence: with T shards cut from 2T equal pieces, shard i holds pieces i and 2T - 1 - i.

Under a causal mask late positions attend to more than early ones; so paired, every shard has the same work
(Brandon et al., arXiv 2311.09431, and the zigzag variant of ring attention).
"""

from __future__ import annotations


def piece_at(place: int, shards: int) -> int:
    """The number of the piece at a place, of 2T; places are counted shard by shard."""
    shard, late = divmod(place, 2)
    return 2 * shards - 1 - shard if late else shard


def order(size: int, shards: int) -> list[int]:
    """The positions of a sequence in zigzag order; `size` is a multiple of 2T."""
    piece = size // (2 * shards)
    return [piece_at(k, shards) * piece + i for k in range(2 * shards) for i in range(piece)]


def fits(size: int, shards: int, inner: int) -> bool:
    """Whether `size` divides into 2T equal pieces, and each of the `inner` parts of a shard is two pieces or part of
    one."""
    return size % (2 * shards * inner) == 0 and (inner == 1 or inner % 2 == 0)
