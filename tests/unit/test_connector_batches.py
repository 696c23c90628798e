"""How reads are divided into batches that mori.io posts at once."""

from __future__ import annotations

import pytest

from connector.batch import Batch

GIB = 1 << 30


def parts(*sizes: int) -> list[list[tuple[int, int, int]]]:
    """Of reads one behind the other here, and 5 bytes further on there."""
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    batch = Batch(None, starts, [start + 5 for start in starts], list(sizes))
    return [list(zip(part.ours, part.theirs, part.sizes, strict=True)) for part in batch.parts()]


def test_batches_have_as_many_reads_as_a_send_queue_has_room_for() -> None:
    """All of them, in order."""
    divided = parts(*[16] * 2500)
    assert [len(part) for part in divided] == [1024, 1024, 452]
    assert [read for part in divided for read in part] == [
        (16 * number, 16 * number + 5, 16) for number in range(2500)
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((GIB,), [[GIB]]),
        ((GIB, 1), [[GIB], [1]]),
        ((GIB // 2, GIB // 2 + 1), [[GIB // 2], [GIB // 2 + 1]]),
        ((5 * GIB // 2,), [[GIB], [GIB], [GIB // 2]]),
        ((1, 2 * GIB), [[1], [GIB], [GIB]]),
        ((1,) * 1025 + (GIB,), [[1] * 1024, [1], [GIB]]),
    ],
)
def test_batches_are_no_larger_than_what_a_port_takes(
    sizes: tuple[int, ...], expected: list[list[int]]
) -> None:
    """The library may make one request of all reads that lie together; none is lost."""
    divided = parts(*sizes)
    assert [[size for _, _, size in part] for part in divided] == expected
    at = 0
    for ours, theirs, size in (read for part in divided for read in part):
        assert (ours, theirs) == (at, at + 5)
        at += size
