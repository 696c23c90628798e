"""Conformance of ``mori.io``: what was seen of facts whose other cases are about more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hw_tests.conformance.arm import Arm, Cases, Pair, finished

case = Cases()

DEGRADED = "EP is degraded, rejecting new submissions"
HINTS = {
    "LOC_LEN": "offsets",
    "LOC_PROT": "lkey",
    "REM_ACCESS": "rkey",
    "REM_OP": "compatible",
    "RETRY_EXC": "MORI_IO_QP_TIMEOUT",
    "RNR_RETRY_EXC": "notif",
}
"""A word of what the library advises, by verbs status; it advises nothing for others."""
LESSER_EVENTS = (
    *("COMM_EST", "PATH_MIG", "PATH_MIG_ERR", "QP_LAST_WQE_REACHED"),
    *("LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER"),
)
"""Of a queue pair, and of a port; besides the two that a case names."""

_FIELDS = ("engine_key", "id", "device_id", "device_bus_id", "data", "size", "loc", "ipc_handle",
           "numa_node")  # fmt: skip
"""Of a memory's descriptor, in the order of the wire, where six more follow."""
_SENT = ["owner", 7, 3, "0000:05:00.0", 1 << 40, 4096, 2, bytes(range(64)), 1,
         128, bytes(range(64, 128)), 5, "pod", 256, 8192]  # fmt: skip
_OTHER = ["other", 8, 4, "0000:06:00.0", 1 << 41, 8192, 1, bytes(64), 0,
          256, bytes(64), 6, "bus", 512, 4096]  # fmt: skip
"""A descriptor, and another in each of its fields."""


@case("1.1")
def kinds_of_tensors_have_their_place_and_tcp_has_no_configuration(arm: Arm) -> None:
    """By the names that torch has for devices."""
    place = arm.mori.MemoryLocationType
    assert arm.mori.TORCH_DEVICE_TYPE_MAP == {"cpu": place.CPU, "cuda": place.GPU}
    assert "TcpBackendConfig" not in dir(arm.mori)


@case("1.4")
def every_field_of_memory_is_read_as_it_was_sent(arm: Arm) -> None:
    """By nine names, none of which can be set; the other six go on as they came."""
    desc = arm.mori.MemoryDesc.unpack(msgspec.msgpack.encode(_SENT))
    read = [getattr(desc, name) for name in _FIELDS]
    assert read == [*_SENT[:6], arm.mori.MemoryLocationType.GPU, *_SENT[7:9]]
    assert msgspec.msgpack.decode(desc.pack()) == _SENT
    for name in _FIELDS:
        with pytest.raises(AttributeError):
            setattr(desc, name, getattr(desc, name))
    empty = arm.mori.MemoryDesc()
    nowhere = arm.mori.MemoryLocationType.Unknown
    assert [getattr(empty, name) for name in _FIELDS] == [
        *("", 0, -1, "", 0, 0, nowhere, bytes(64), -1)
    ]


@case("1.4")
def descriptors_of_memory_are_equal_without_their_handles(arm: Arm) -> None:
    """And whatever its pod is; another value in any other field is other memory."""

    def unpacked(*values: Any) -> Any:
        return arm.mori.MemoryDesc.unpack(msgspec.msgpack.encode(values))

    ignored = [
        at
        for at, value in enumerate(_OTHER)
        if unpacked(*_SENT[:at], value, *_SENT[at + 1 :]) == unpacked(*_SENT)
    ]
    assert ignored == [7, 10, 11, 12, 13, 14]


@case("1.4", "processes")
def a_restarted_engine_numbers_its_memory_anew(arm: Arm) -> None:
    """So an old number names new memory."""
    pair = arm.pair()
    before = pair.remote_desc.id
    arm.crash_target(pair)
    arm.restart_target(pair)
    assert pair.remote_desc.id == before == 0


@case("1.5")
def waiting_without_a_limit_lets_other_threads_run(arm: Arm) -> None:
    """One of which ends the wait."""
    code = arm.mori.StatusCode
    waits: list[Callable[[Any], Any]] = [lambda of: of.Wait(), lambda of: of.WaitFor(-1)]
    for wait in waits:
        status = arm.transfer_status()
        status.SetCode(code.IN_PROGRESS)

        def finish(status: Any = status) -> None:
            arm.sleep(0.05)
            status.Update(code.SUCCESS, "")

        join = arm.thread(finish)
        wait(status)
        assert status.Succeeded()
        join()


@case("2.3")
def a_size_that_is_not_the_registered_one_is_told_with_it(arm: Arm) -> None:
    """Both sizes are in the text."""
    pair = arm.pair(size=4096)
    wire = msgspec.msgpack.decode(pair.remote_desc.pack())
    wire[5] = 8192
    other = arm.mori.MemoryDesc.unpack(msgspec.msgpack.encode(wire))
    with pytest.raises(RuntimeError, match=r"remote MR size mismatch.*8192.*4096"):
        pair.initiator.create_session(pair.local_desc, other)


@case("2.5", "counts")
def a_peer_that_asks_for_more_queue_pairs_gets_what_is_missing(arm: Arm) -> None:
    """Four where there is one: three more, on both sides."""
    pair = arm.pair(qp_per_transfer=1, target={"qp_per_transfer": 4})
    session = pair.session()
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
    assert (arm.queue_pairs(pair.initiator), arm.queue_pairs(pair.target)) == (1, 1)
    reverse = pair.reverse_session()
    assert finished(reverse.write(0, 0, 64, 0)).Succeeded()
    assert (arm.queue_pairs(pair.initiator), arm.queue_pairs(pair.target)) == (4, 4)


@case("2.7")
def other_sizes_of_chains_on_a_queue_of_sixteen(arm: Arm) -> None:
    """Those that divide it succeed; the one that does not asks for more room, in this order."""
    arm.set_environment("MORI_IO_SQ_BACKOFF_TIMEOUT_US", "1000000")
    offsets = [i * 128 for i in range(40)]
    for chain, is_good in ((1, True), (16, True), (3, False)):
        pair = arm.pair(max_send_wr=16, post_batch_size=chain)
        status = finished(pair.session().batch_write(offsets, offsets, [64] * 40, 0))
        assert status.Succeeded() is is_good, chain
    said = status.Message()
    advice = ["MORI_IO_SQ_BACKOFF_TIMEOUT_US", "MORI_IO_QP_MAX_SEND_WR", "postBatchSize",
              "qpPerTransfer"]  # fmt: skip
    places = [said.find(word) for word in advice]
    assert places == sorted(places)
    assert min(places) > 0


@case("2.7", "completions")
def full_queues_work_again_after_a_part_was_delivered(arm: Arm) -> None:
    """Of chains with a signal at their end no depth is lost."""
    arm.set_environment("MORI_IO_SQ_BACKOFF_TIMEOUT_US", "500000")
    pair = arm.pair(qp_per_transfer=2, max_send_wr=16)
    session = pair.session()
    arm.hold(pair.initiator, 1.5)
    filler = [session.write(i * 128, i * 128, 8, 1) for i in range(16)]
    offsets = [i * 128 for i in range(32)]
    assert finished(session.batch_write(offsets, offsets, [8] * 32, 0)).Failed()
    assert all(finished(one).Succeeded() for one in filler)
    arm.sleep(0.5)
    for uid in (2, 4):
        assert finished(session.batch_write(offsets, offsets, [8] * 32, uid)).Succeeded()


@case("2.8", "completions")
def six_completions_come_with_advice(arm: Arm) -> None:
    """Behind the text of the verbs status, or nothing."""
    for name in ("LOC_QP_OP", "MW_BIND", "BAD_RESP", "LOC_ACCESS", "REM_INV_REQ", *HINTS):
        pair = arm.pair()
        session = pair.session()
        arm.fail_next(pair.initiator, name, 0)
        said = finished(session.write(0, 0, 64, 0)).Message()
        assert ("hint" in said.lower()) == (name in HINTS), said
        assert HINTS.get(name, "").lower() in said.lower(), said


@case("2.8", "completions")
def only_the_initiator_sees_that_its_peer_is_unreachable(arm: Arm) -> None:
    """And is told that nothing was acknowledged."""
    pair = arm.pair()
    session = pair.session()
    arm.fail_next(pair.initiator, "RETRY_EXC", 0)
    assert finished(session.write(0, 0, 64, 0)).Failed()
    arm.sleep(0.3)
    assert pair.target.pop_peer_failure() is None
    assert "acknowledge" in pair.initiator.pop_peer_failure().detail


@case("2.9", "events", "completions")
def nothing_is_accepted_after_an_event_of_the_device(arm: Arm) -> None:
    """As after one of the queue pair; the event is of no port."""
    for name in ("CQ_ERR", "DEVICE_FATAL"):
        pair = arm.pair()
        session = pair.session()
        assert finished(session.write(0, 0, 64, 0)).Succeeded()
        arm.raise_event(pair.initiator, name)
        arm.sleep(0.3)
        assert finished(session.write(0, 0, 64, 1)).Message().startswith(DEGRADED)
        assert pair.initiator.pop_peer_failure().port_num == 0


def _is_survived(arm: Arm, pair: Pair, session: Any, name: str, *, alive: bool) -> None:
    """What is in flight completes, and what is posted afterwards is accepted."""
    arm.hold(pair.initiator, 0.5)
    status = session.write(0, 0, 64, 0)
    arm.raise_event(pair.initiator, name)
    for _ in range(30):  # another thread takes notice, when it gets to run
        arm.sleep(0.2)
        if session.alive() is alive:
            break
    assert (session.alive(), status.Failed()) == (alive, False), name
    assert (pair.initiator.pop_peer_failure() is None) is alive, name
    assert finished(status).Succeeded(), name
    assert finished(session.write(0, 0, 64, 1)).Succeeded(), name


@case("2.9", "events", "completions")
def what_is_in_flight_survives_events_of_a_port(arm: Arm) -> None:
    """It completes if the wire does, whether the port goes or comes back."""
    pair = arm.pair()
    session = pair.session()
    _is_survived(arm, pair, session, "PORT_ERR", alive=False)
    _is_survived(arm, pair, session, "PORT_ACTIVE", alive=True)


@case("2.9", "events", "completions")
def lesser_events_change_nothing(arm: Arm) -> None:
    """Neither those of a queue pair that can go on nor those of a port that has not gone."""
    pair = arm.pair()
    session = pair.session()
    for name in ("SQ_DRAINED", "GID_CHANGE", *LESSER_EVENTS):
        _is_survived(arm, pair, session, name, alive=True)


@case("2.10", "completions")
def no_session_is_made_without_the_backend(arm: Arm) -> None:
    """Whatever was in flight when it was removed."""
    pair = arm.pair()
    session = pair.session()
    arm.hold(pair.initiator, 1)
    session.write(0, 0, 64, 0)
    pair.initiator.remove_backend(arm.mori.BackendType.RDMA)
    assert pair.initiator.create_session(pair.local_desc, pair.remote_desc) is None


@case("2.13", "processes")
def the_retry_budget_is_that_of_the_environment(arm: Arm) -> None:
    """A number out of range leaves the default of half a second."""
    for name, value, within in (
        ("MORI_IO_QP_RETRY_CNT", "1", (0.05, 0.4)),
        ("MORI_IO_QP_RETRY_CNT", "9", (0.4, 1.5)),
    ):
        arm.set_environment(name, value)
        pair = arm.pair()
        session = pair.session()
        assert finished(session.write(0, 0, 64, 0)).Succeeded()
        arm.crash_target(pair)
        began = arm.seconds()
        assert finished(session.write(0, 0, 64, 1)).Failed()
        shortest, longest = within
        assert shortest < arm.seconds() - began < longest, value
