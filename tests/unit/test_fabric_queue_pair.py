from __future__ import annotations

import pytest
from fabric_world import Answer, FabricWorld

from sim.errors import TestbedError
from sim.fabric import CompletionItem, LandLate, LandPart, WorkRequestItem
from sim.fabric.named import CX7
from sim.fabric.queue_pair import QueuePairState
from sim.kernel import Kernel, Seed
from sim.units import MS, SECOND
from sim.verdict import Corrupt, Delay, Deliver, Drop, Duplicate, Fail, Verdict

BUDGET_NS = CX7.timers.retry_budget_ns


@pytest.fixture
def kernel():
    with Kernel(Seed(1)).running() as kernel:
        yield kernel


@pytest.fixture
def world(kernel: Kernel) -> FabricWorld:
    world = FabricWorld(kernel)
    world.tensors["p"].fill_(7)
    return world


def _answer(world: FabricWorld, kind: type, verdict: Verdict, times: int = 1) -> None:
    world.fabric.verdicts.add(Answer(kind, verdict, times))


def test_observers_see_the_memory_before_and_after(world: FabricWorld, kernel: Kernel) -> None:
    """One landing for the whole chain, with its segments as columns and who moved what."""
    queue_pair = world.connect()
    world.post(queue_pair, [100, 200, 300], at=50)
    kernel.run()
    assert world.landings.first_bytes == [(0, 7)]
    ((_time, landing),) = world.landings.seen
    assert (landing.initiator, landing.target, landing.operation) == ("d", "p", "read")
    assert (landing.source, landing.destination) == (world.regions["p"], world.regions["d"])
    assert landing.destination_offsets.tolist() == [50, 150, 350]
    assert landing.sizes.tolist() == [100, 200, 300]
    assert (landing.posted_ns, landing.queue_pair) == (0, queue_pair.number)
    assert world.statuses() == ["SUCCESS"]


def test_bytes_are_taken_when_they_land(world: FabricWorld, kernel: Kernel) -> None:
    """Not when the work request is posted: a source rewritten in between is seen."""
    world.post(world.connect(), [100])
    world.tensors["p"].fill_(8)
    kernel.run()
    assert int(world.tensors["d"][0]) == 8


def test_unsignaled_chains_complete_in_silence(world: FabricWorld, kernel: Kernel) -> None:
    """Only the signaled tail is reported."""
    queue_pair = world.connect()
    world.post(queue_pair, [100], signaled=False)
    last = world.post(queue_pair, [100])
    kernel.run()
    assert [completion.chain for _time, completion in world.completions] == [last]


def test_an_error_flushes_what_is_behind_and_what_comes(world: FabricWorld, kernel: Kernel) -> None:
    """Nothing of it lands; completions keep the order of posting."""
    queue_pair = world.connect()
    _answer(world, WorkRequestItem, Fail("REM_OP", ""))
    chains = [world.post(queue_pair, [100]) for _ in range(3)]
    kernel.run()
    chains.append(world.post(queue_pair, [100]))
    kernel.run()
    assert world.statuses() == ["REM_OP", "WR_FLUSH", "WR_FLUSH", "WR_FLUSH"]
    assert [completion.chain for _time, completion in world.completions] == chains
    assert world.landings.seen == []
    assert queue_pair.state is QueuePairState.ERROR


def test_partial_landing_on_one_of_two_queue_pairs(world: FabricWorld, kernel: Kernel) -> None:
    """The chosen work requests land, the missing one fails, the other queue pair does not care."""
    one, other = world.connect(), world.connect()
    _answer(world, WorkRequestItem, LandPart((0, 2), "RETRY_EXC"))
    world.post(one, [100] * 4)
    world.post(other, [100] * 4, at=1000)
    kernel.run()
    landed = world.tensors["d"].ne(0)
    assert [bool(landed[i * 100]) for i in range(4)] == [True, False, True, False]
    assert landed[1000:1400].all()
    by_queue_pair = [(c.queue_pair, c.status.name, c.is_tail) for _t, c in world.completions]
    assert sorted(by_queue_pair) == sorted(
        [
            (one.number, "RETRY_EXC", False),
            (one.number, "WR_FLUSH", True),
            (other.number, "SUCCESS", True),
        ]
    )


def test_late_landing_holds_up_its_queue_pair_only(world: FabricWorld, kernel: Kernel) -> None:
    """What was posted behind it comes later still; another queue pair overtakes."""
    one, other = world.connect(), world.connect()
    _answer(world, WorkRequestItem, Delay(20 * SECOND))
    first, second = world.post(one, [100]), world.post(one, [100], at=100)
    third = world.post(other, [100], at=200)
    kernel.run()
    assert [completion.chain for _time, completion in world.completions] == [third, first, second]
    assert world.completions[1][0] > 20 * SECOND


def test_a_late_landing_does_not_outlive_its_process(world: FabricWorld, kernel: Kernel) -> None:
    """Nothing lands through the queue pair of a process that crashed meanwhile."""
    _answer(world, WorkRequestItem, Delay(20 * SECOND))
    world.post(world.connect(), [100])
    kernel.call_later(SECOND, kernel.crash, world.devices["d"].process)
    kernel.run()
    assert world.landings.seen == []
    assert world.completions == []


def test_a_lost_completion_hides_bytes_that_landed(world: FabricWorld, kernel: Kernel) -> None:
    """And only that one: the next is reported."""
    queue_pair = world.connect()
    _answer(world, CompletionItem, Drop())
    world.post(queue_pair, [100])
    second = world.post(queue_pair, [100])
    kernel.run()
    assert [completion.chain for _time, completion in world.completions] == [second]
    assert len(world.landings.seen) == 2


def test_a_silent_queue_pair_reports_nothing_any_more(world: FabricWorld, kernel: Kernel) -> None:
    """Every completion is lost; the bytes land all the same."""
    queue_pair = world.connect()
    _answer(world, CompletionItem, Drop(), times=1000)
    for _ in range(5):
        world.post(queue_pair, [100])
    kernel.run()
    assert (len(world.landings.seen), world.completions) == (5, [])


def test_completion_before_the_bytes(world: FabricWorld, kernel: Kernel) -> None:
    """Success is reported in time and the bytes come a millisecond later."""
    _answer(world, WorkRequestItem, LandLate(MS))
    world.post(world.connect(), [100])
    kernel.run()
    ((completed_ns, _completion),), ((landed_ns, _landing),) = (
        world.completions,
        world.landings.seen,
    )
    assert completed_ns < landed_ns
    assert int(world.tensors["d"][0]) == 7


def test_a_flipped_byte_is_reported_as_success(world: FabricWorld, kernel: Kernel) -> None:
    """The change is made to what lands, not to the source."""

    def flip(payload) -> None:
        payload[150] ^= 0xFF

    _answer(world, WorkRequestItem, Corrupt(flip))
    world.post(world.connect(), [100, 100], at=10)
    kernel.run()
    assert world.statuses() == ["SUCCESS"]
    assert world.tensors["d"].ne(0).sum() == 200
    assert int(world.tensors["d"][160]) == 7 ^ 0xFF
    assert world.tensors["p"].eq(7).all()


def test_a_duplicate_lands_what_was_sent_the_first_time(world: FabricWorld, kernel: Kernel) -> None:
    """The second landing brings the old bytes, whatever source and destination are by then."""
    _answer(world, WorkRequestItem, Duplicate(MS))
    world.post(world.connect(), [100])
    kernel.run(until_ns=MS // 2)
    world.tensors["d"].fill_(1)
    world.tensors["p"].fill_(2)
    kernel.run()
    assert int(world.tensors["d"][0]) == 7
    assert world.statuses() == ["SUCCESS"]


def test_a_dropped_work_request_is_never_heard_of(world: FabricWorld, kernel: Kernel) -> None:
    """No bytes, no completion."""
    _answer(world, WorkRequestItem, Drop())
    world.post(world.connect(), [100])
    kernel.run()
    assert (world.completions, world.landings.seen) == ([], [])


def test_completion_with_error_after_the_bytes_landed(world: FabricWorld, kernel: Kernel) -> None:
    """As when the acknowledgement was lost."""
    queue_pair = world.connect()
    _answer(world, CompletionItem, Fail("RETRY_EXC", "told so"))
    world.post(queue_pair, [100])
    kernel.run()
    assert int(world.tensors["d"][0]) == 7
    assert [c.text for _t, c in world.completions] == ["told so"]
    assert queue_pair.state is QueuePairState.ERROR


def test_invalid_memory_is_a_protection_error(world: FabricWorld, kernel: Kernel) -> None:
    """The remote side's is a remote access error, the own side's a local one."""
    first, second = world.connect(), world.connect()
    world.regions["p"].invalidate()
    world.post(first, [100])
    kernel.run()
    world.regions["d"].invalidate()
    world.post(second, [100])
    kernel.run()
    assert world.statuses() == ["REM_ACCESS", "LOC_PROT"]


def test_a_dead_peer_costs_the_retry_budget(world: FabricWorld, kernel: Kernel) -> None:
    """What was posted to it fails together, about 537 ms after the first attempt."""
    queue_pair = world.connect()
    kernel.crash(world.devices["p"].process)
    world.post(queue_pair, [100])
    world.post(queue_pair, [100])
    kernel.run()
    assert world.statuses() == ["RETRY_EXC", "WR_FLUSH"]
    assert world.completions[0][0] == BUDGET_NS + CX7.read_completion_ns


def test_a_crash_in_the_middle_leaves_a_prefix(world: FabricWorld, kernel: Kernel) -> None:
    """Of 1000 work requests of 1000 bytes, those through the wire by then have landed."""
    queue_pair = world.connect()
    world.post(queue_pair, [1000] * 1000)
    kernel.call_later(11_050, kernel.crash, world.devices["p"].process)
    kernel.run()
    landed = int(world.tensors["d"].ne(0).sum())
    # 11,050 ns at 44.86 bytes a nanosecond are 495.7 work requests, but a NIC's need per work
    # request of 32 ns is more than its 22.3 ns of bytes: 345.
    assert landed == 345_000
    assert world.statuses() == ["RETRY_EXC", "WR_FLUSH"]


def test_a_cut_that_heals_in_time_only_costs_time(world: FabricWorld, kernel: Kernel) -> None:
    """The transfer goes on with the next repetition, one acknowledgement time-out apart."""
    queue_pair = world.connect()
    world.fabric.cut("p", "d")
    world.post(queue_pair, [100])
    kernel.call_later(100 * MS, world.fabric.heal, "d", "p")
    kernel.run()
    assert world.statuses() == ["SUCCESS"]
    assert 2 * CX7.timers.ack_timeout_ns < world.completions[0][0] < 3 * CX7.timers.ack_timeout_ns
    assert queue_pair.state is QueuePairState.READY_TO_SEND


def test_a_cut_that_heals_too_late_kills_the_queue_pair(world: FabricWorld, kernel: Kernel) -> None:
    """In error it stays."""
    queue_pair = world.connect()
    world.post(queue_pair, [1 << 20])
    kernel.call_later(1000, world.fabric.cut, "p", "d")
    kernel.call_later(SECOND, world.fabric.heal, "p", "d")
    kernel.run()
    assert world.statuses() == ["RETRY_EXC"]
    world.post(queue_pair, [100])
    kernel.run()
    assert world.statuses() == ["RETRY_EXC", "WR_FLUSH"]


def test_an_idle_queue_pair_survives_a_cut(world: FabricWorld, kernel: Kernel) -> None:
    """Nothing was sent, so nothing was missed."""
    queue_pair = world.connect()
    world.fabric.cut("p", "d")
    kernel.call_later(10 * SECOND, world.fabric.heal, "p", "d")
    kernel.run()
    world.post(queue_pair, [100])
    kernel.run()
    assert world.statuses() == ["SUCCESS"]


def test_a_paused_process_hears_of_completions_when_it_resumes(
    world: FabricWorld, kernel: Kernel
) -> None:
    """The NIC goes on: bytes land during the pause, at the usual time."""
    process = world.devices["d"].process
    kernel.call_later(1, kernel.pause, process)
    kernel.call_later(SECOND, kernel.resume, process)
    world.post(world.connect(), [100])
    kernel.run()
    assert world.landings.seen[0][0] < MS
    assert world.completions[0][0] == SECOND


def test_a_crashed_process_hears_of_nothing(world: FabricWorld, kernel: Kernel) -> None:
    """Neither of what was in flight nor of its end."""
    kernel.call_later(1, kernel.crash, world.devices["d"].process)
    world.post(world.connect(), [100])
    kernel.run()
    assert (world.completions, world.landings.seen) == ([], [])


def test_senseless_verdicts_are_refused_by_name(world: FabricWorld, kernel: Kernel) -> None:
    """A rule that asks for the impossible is a defect of the testbed, not of the guest."""
    _answer(world, CompletionItem, Duplicate(1))
    world.post(world.connect(), [100])
    with pytest.raises(TestbedError, match=r"CompletionItem cannot honour.*Duplicate"):
        kernel.run()


def test_a_rule_names_a_completion_status(world: FabricWorld, kernel: Kernel) -> None:
    """Anything else is an error that lists the accepted names."""
    _answer(world, WorkRequestItem, Fail("ERR_RDMA_OP", ""))
    world.post(world.connect(), [100])
    with pytest.raises(TestbedError, match=r"'ERR_RDMA_OP'.*REM_ACCESS"):
        kernel.run()


def test_delivering_is_the_default(world: FabricWorld, kernel: Kernel) -> None:
    """A rule that says so changes nothing."""
    _answer(world, WorkRequestItem, Deliver(), times=9)
    world.post(world.connect(), [100])
    kernel.run()
    assert world.statuses() == ["SUCCESS"]


def test_what_is_sent_again_keeps_its_fate(world: FabricWorld, kernel: Kernel) -> None:
    """A chain delayed once is delayed once more after an interruption, not landed early."""
    queue_pair = world.connect()
    world.post(queue_pair, [100])
    world.post(queue_pair, [100], at=200)
    rule = Answer(WorkRequestItem, Delay(100 * MS))
    kernel.call_later(40, world.fabric.verdicts.add, rule)  # the first has left the wire by then
    kernel.call_later(1000, world.fabric.cut, "p", "d")
    kernel.call_later(MS, world.fabric.heal, "p", "d")
    kernel.run()
    first_ns, second_ns = (time for time, _landing in world.landings.seen)
    assert CX7.timers.ack_timeout_ns < first_ns < CX7.timers.ack_timeout_ns + MS
    assert second_ns > CX7.timers.ack_timeout_ns + 100 * MS
    assert world.statuses() == ["SUCCESS", "SUCCESS"]


def test_completions_of_a_queue_pair_stay_in_order(world: FabricWorld, kernel: Kernel) -> None:
    """One that is late holds up the next."""
    queue_pair = world.connect()
    _answer(world, CompletionItem, Delay(MS))
    chains = [world.post(queue_pair, [100]) for _ in range(2)]
    kernel.run()
    assert [completion.chain for _time, completion in world.completions] == chains
    assert world.completions[0][0] > MS


def test_sending_before_the_other_end_is_ready_only_costs_a_repetition(
    world: FabricWorld, kernel: Kernel
) -> None:
    """The end that accepts a connection is ready before the one that asked for it."""
    asking = world.devices["d"].create_queue_pair(8192)
    accepting = world.devices["p"].create_queue_pair(8192)
    accepting.connect(asking)
    world.post(accepting, [100])
    kernel.call_later(MS, asking.connect, accepting)
    kernel.run()
    assert world.statuses() == ["SUCCESS"]
    assert world.completions[0][0] > CX7.timers.ack_timeout_ns


@pytest.mark.parametrize("verdict", [LandLate(SECOND), Duplicate(SECOND)])
def test_a_second_landing_needs_both_ends(
    world: FabricWorld, kernel: Kernel, verdict: Verdict
) -> None:
    """A process that crashed in between takes its queue pairs along."""
    _answer(world, WorkRequestItem, verdict)
    world.post(world.connect(), [100])
    kernel.run(until_ns=MS)
    landed = len(world.landings.seen)
    kernel.crash(world.devices["p"].process)
    kernel.run()
    assert len(world.landings.seen) == landed


def test_the_completion_thread_needs_no_gil(world: FabricWorld, kernel: Kernel) -> None:
    """A sibling that blocks with the GIL does not keep completions from being reaped."""

    def hold() -> None:
        with kernel.gil_held():
            kernel.sleep(SECOND)

    kernel.spawn(world.devices["d"].process, hold, name="holder")
    kernel.call_later(MS, world.post, world.connect(), [100])
    kernel.run()
    assert world.completions[0][0] < 2 * MS
