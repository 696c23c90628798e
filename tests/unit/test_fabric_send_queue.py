from __future__ import annotations

import pytest

from sim.fabric.mori.plan import Items, chains, to_column
from sim.fabric.send_queue import SendQueue
from sim.kernel import Kernel, Node, Process, Seed


@pytest.fixture
def kernel():
    with Kernel(Seed(1)).running() as kernel:
        yield kernel


@pytest.fixture
def process() -> Process:
    return Process(Node("d", "10.0.0.1"), "core")


def test_room_is_taken_for_all_or_none(kernel: Kernel) -> None:
    """A chain that does not fit takes nothing."""
    queue = SendQueue(kernel, 16)
    assert queue.take(10)
    assert not queue.take(7)
    assert queue.depth == 10


def test_waiters_are_served_in_order(kernel: Kernel, process: Process) -> None:
    """Also when the second would fit first."""
    queue, served = SendQueue(kernel, 16), []
    queue.take(16)

    def wait(name: str, count: int) -> None:
        assert queue.wait_for(count, 10_000, "room")
        served.append((name, kernel.now_ns))

    kernel.spawn(process, wait, "large", 10, name="large")
    kernel.spawn(process, wait, "small", 1, name="small")
    kernel.call_later(100, queue.give_back, 5)
    kernel.call_later(200, queue.give_back, 11)
    kernel.run()
    assert served == [("large", 200), ("small", 200)]
    assert (kernel.failures, queue.depth) == ([], 11)


def test_a_wait_for_room_ends(kernel: Kernel, process: Process) -> None:
    """At its time-out, and then nothing is reserved for who left."""
    queue, outcome = SendQueue(kernel, 4), []
    queue.take(4)
    kernel.spawn(
        process,
        lambda: outcome.append((queue.wait_for(1, 5_000, "room"), kernel.now_ns)),
        name="t",
    )
    kernel.call_later(9_000, queue.give_back, 4)
    kernel.run()
    assert outcome == [(False, 5_000)]
    assert queue.depth == 0


def test_every_queue_pair_gets_one_signaled_tail() -> None:
    """10 on 4 queue pairs from the third: equal chains, each signaled."""
    plan = list(chains(10, 4, first=2, post_batch_size=-1, depth=8192))
    assert [(c.queue_pair, c.begin, c.end, c.signaled, c.credit) for c in plan] == [
        (2, 0, 3, True, 3),
        (3, 3, 6, True, 3),
        (0, 6, 9, True, 3),
        (1, 9, 10, True, 1),
    ]


def test_a_full_queue_s_worth_of_work_requests_is_signaled() -> None:
    """So that a call larger than the queue drains; unsignaled ones count for the next tail."""
    plan = list(chains(10, 1, first=0, post_batch_size=2, depth=4))
    assert [(c.signaled, c.credit) for c in plan] == [
        (False, 0),
        (True, 4),
        (False, 0),
        (True, 4),
        (True, 2),
    ]


def test_merging_keeps_every_byte() -> None:
    """Sorted by remote offset, at most so many segments a work request."""
    items = Items(
        to_column([900, 0, 100, 300]), to_column([300, 0, 100, 200]), to_column([100] * 4)
    )
    segments = items.merged(2)
    assert segments.local_offsets.tolist() == [0, 300, 900]
    assert segments.remote_offsets.tolist() == [0, 200, 300]
    assert segments.sizes.tolist() == [200, 100, 100]
    assert segments.first_segments.tolist() == [0, 2]
    assert segments.slice(1, 2).sizes.tolist() == [100]
    assert segments.only((1,)).local_offsets.tolist() == [900]
