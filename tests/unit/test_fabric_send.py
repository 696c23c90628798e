from __future__ import annotations

from typing import Any

import pytest
from fabric_world import Answer, FabricWorld
from msgspec.structs import replace

from sim.fabric.named import CX7
from sim.fabric.queue_pair import QueuePair, QueuePairState
from sim.fabric.timers import Timers
from sim.fabric.verdicts import CompletionItem, SendItem
from sim.fabric.work import Received, Send
from sim.kernel import Kernel, Seed
from sim.units import MS, SECOND
from sim.verdict import Delay, Drop, Fail

RNR_WAIT_NS = CX7.timers.rnr_wait_ns


class SendWorld(FabricWorld):
    """``p`` keeps the time and bytes of what its receives were filled with."""

    def __init__(self, kernel: Kernel, profile: Any = CX7) -> None:
        self.received: list[tuple[int, bytes]] = []
        super().__init__(kernel, profile)

    def _completed(self, notice: Any) -> None:
        if isinstance(notice, Received):
            self.received.append((self.kernel.now_ns, notice.message))
        else:
            super()._completed(notice)

    def send(self, queue_pair: QueuePair, message: bytes = b"0123456789abcdef") -> None:
        queue_pair.post(Send.of(message, 0))

    def peer_of(self, queue_pair: QueuePair) -> QueuePair:
        assert queue_pair.peer is not None
        return queue_pair.peer


@pytest.fixture
def world():
    with Kernel(Seed(1)).running() as kernel:
        yield SendWorld(kernel)


def test_a_send_arrives_after_the_data_posted_before_it(world: SendWorld) -> None:
    """RC order on one queue pair is what makes a notification mean something."""
    queue_pair = world.connect()
    world.peer_of(queue_pair).post_receives(1)
    world.post(queue_pair, [100_000], read=False)
    world.send(queue_pair)
    world.kernel.run()
    ((landed_ns, _landing),) = world.landings.seen
    ((received_ns, message),) = world.received
    assert landed_ns < received_ns
    assert message == b"0123456789abcdef"
    assert world.statuses() == ["SUCCESS", "SUCCESS"]
    assert world.peer_of(queue_pair).receives == 0


def test_without_a_receive_nothing_behind_the_send_moves(world: SendWorld) -> None:
    """For ever by default: neither bytes nor completions, and no error."""
    queue_pair = world.connect()
    world.post(queue_pair, [64], read=False)
    world.send(queue_pair)
    world.post(queue_pair, [64], read=False)
    world.kernel.run(until_ns=100 * SECOND)
    assert world.statuses() == ["SUCCESS"]
    assert len(world.landings.seen) == 1
    assert queue_pair.state is QueuePairState.READY_TO_SEND


def test_what_was_on_the_wire_behind_the_send_does_not_land_in_part(world: SendWorld) -> None:
    """The other NIC drops it: nothing may land out of order."""
    queue_pair = world.connect()
    world.send(queue_pair)
    world.post(queue_pair, [64_000] * 8, read=False)
    world.kernel.run(until_ns=SECOND)
    assert world.landings.seen == []


def test_a_receive_lets_the_next_repetition_through(world: SendWorld) -> None:
    """Repetitions come after multiples of the time that the receiver asked for."""
    queue_pair = world.connect()
    world.send(queue_pair)
    world.post(queue_pair, [64], read=False)
    world.kernel.call_later(10 * MS, world.peer_of(queue_pair).post_receives, 1)
    world.kernel.run()
    ((received_ns, _message),) = world.received
    assert 10 * MS < received_ns < 10 * MS + RNR_WAIT_NS + 10_000
    assert world.statuses() == ["SUCCESS", "SUCCESS"]


def test_limited_retries_end_in_an_error() -> None:
    """Three repetitions, each after the receiver's timer, then the queue pair is dead."""
    profile = replace(CX7, timers=Timers(rnr_retry=3))
    with Kernel(Seed(1)).running() as kernel:
        world = SendWorld(kernel, profile)
        queue_pair = world.connect()
        world.send(queue_pair)
        world.post(queue_pair, [64], read=False)
        kernel.run()
        assert world.statuses() == ["RNR_RETRY_EXC", "WR_FLUSH"]
        assert 3 * RNR_WAIT_NS < world.completions[0][0] < 3 * RNR_WAIT_NS + 20_000


def test_a_path_that_goes_while_the_receiver_is_not_ready(world: SendWorld) -> None:
    """Then nobody answers any more, which ends after the transport's budget."""
    queue_pair = world.connect()
    world.send(queue_pair)
    world.kernel.call_later(SECOND, world.fabric.cut, "p", "d")
    world.kernel.run()
    assert world.statuses() == ["RETRY_EXC"]


def test_a_healed_path_finds_the_receiver_still_not_ready(world: SendWorld) -> None:
    """The silence is over, so the budget does not run out; a receive ends the wait."""
    queue_pair = world.connect()
    world.send(queue_pair)
    world.kernel.call_later(SECOND, world.fabric.cut, "p", "d")
    world.kernel.call_later(SECOND + 100 * MS, world.fabric.heal, "p", "d")
    world.kernel.call_later(5 * SECOND, world.peer_of(queue_pair).post_receives, 1)
    world.kernel.run()
    assert world.statuses() == ["SUCCESS"]
    assert world.received[0][0] > 5 * SECOND


def test_a_timeout_of_zero_never_gives_up() -> None:
    """As the library warns: an infinite stall."""
    with Kernel(Seed(1)).running() as kernel:
        world = SendWorld(kernel, replace(CX7, timers=Timers(timeout=0)))
        queue_pair = world.connect()
        world.fabric.cut("p", "d")
        world.post(queue_pair, [64])
        kernel.run(until_ns=1_000 * SECOND)
        assert world.statuses() == []


@pytest.mark.parametrize(("code", "wait_ns"), [(0, 655_360_000), (1, 10_000), (31, 491_520_000)])
def test_codes_of_the_receivers_timer(code: int, wait_ns: int) -> None:
    """As the specification's table has them; 12, the library's, is 0.64 ms."""
    assert Timers(min_rnr_timer=code).rnr_wait_ns == wait_ns
    assert RNR_WAIT_NS == 640_000


def test_rules_for_sends(world: SendWorld) -> None:
    """They can be late, lost without a trace, completed without a word, or fail."""
    outcomes = []
    for verdict in (Delay(SECOND), Drop(), Fail("REM_OP", "")):
        queue_pair = world.connect()
        world.peer_of(queue_pair).post_receives(1)
        world.fabric.verdicts.add(Answer(SendItem, verdict))
        world.send(queue_pair)
        began = world.kernel.now_ns
        world.kernel.run()
        took = [received_ns - began > SECOND for received_ns, _message in world.received]
        outcomes.append((took, world.statuses()))
        world.received.clear()
        world.completions.clear()
    assert outcomes == [([True], ["SUCCESS"]), ([], []), ([], ["REM_OP"])]
    queue_pair = world.connect()
    world.peer_of(queue_pair).post_receives(1)
    world.fabric.verdicts.add(Answer(CompletionItem, Drop()))
    world.send(queue_pair)
    world.kernel.run()
    assert (len(world.received), world.statuses()) == (1, [])
