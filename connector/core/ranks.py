"""Which tensor-parallel ranks of two engines have to do with each other."""

from __future__ import annotations

from connector.core.errors import PeerMismatch


def source_rank(rank: int, our_size: int, their_size: int) -> int:
    """The peer's rank that holds this rank's share."""
    _check_sizes(our_size, their_size)
    return rank * their_size // our_size


def holder_ranks(rank: int, our_size: int, their_size: int) -> tuple[int, ...]:
    """The producer's ranks that keep blocks until this consumer rank releases them.

    With more producer ranks than consumer ranks each consumer rank releases several, of which it
    reads only the first.
    """
    first = source_rank(rank, our_size, their_size)
    return tuple(range(first, first + max(1, their_size // our_size)))


def readers_of(producer_size: int, consumer_size: int) -> int:
    """Consumer ranks that release each producer rank."""
    _check_sizes(producer_size, consumer_size)
    return max(1, consumer_size // producer_size)


def _check_sizes(our_size: int, their_size: int) -> None:
    if our_size < 1 or their_size < 1 or (our_size % their_size and their_size % our_size):
        raise PeerMismatch(
            f"tensor-parallel sizes {our_size} and {their_size} do not fit: one must divide the "
            "other"
        )
