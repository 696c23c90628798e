"""Conformance of ``mori.io``: completion errors, events, dead and restarted peers, the GIL."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hw_tests.conformance.arm import Arm, Cases, finished

case = Cases("gpu-rdma")

FLUSHED = "Work Request Flushed Error"
# Status, start of the message, whether sessions stay alive.
COMPLETION_ERRORS = [
    ("LOC_LEN", "local length error", True),
    ("LOC_QP_OP", "local QP operation error", True),
    ("LOC_PROT", "local protection error", True),
    ("WR_FLUSH", FLUSHED, True),
    ("MW_BIND", "memory management operation error", True),
    ("BAD_RESP", "bad response error", True),
    ("LOC_ACCESS", "local access error", True),
    ("REM_INV_REQ", "remote invalid request error", True),
    ("REM_ACCESS", "remote access error", True),
    ("REM_OP", "remote operation error", True),
    ("RETRY_EXC", "transport retry counter exceeded", False),
    ("RNR_RETRY_EXC", "RNR retry counter exceeded", True),
]


def _failed_with(arm: Arm, status: Any, text: str) -> None:
    finished(status)
    assert (status.Code(), status.Message()[: len(text)]) == (
        arm.mori.StatusCode.ERR_RDMA_OP,
        text,
    )
    arm.sleep(0.1)  # another thread tells sessions and the queue of failures a moment later


@case("0.6", "completions")
def completion_errors(arm: Arm) -> None:
    """Each status has its text; the queue pair is dead afterwards; alive() mostly does not say."""
    for name, text, alive in COMPLETION_ERRORS:
        pair = arm.pair()
        session = pair.session()
        arm.fail_next(pair.initiator, name, 0)
        _failed_with(arm, session.write(0, 0, 64, 0), text)
        assert session.alive() is alive, name
        _failed_with(arm, session.write(0, 0, 64, 1), FLUSHED)
        event = pair.initiator.pop_peer_failure()
        assert (event is None) is alive, name


@case("2.8", "completions")
def the_event_of_an_unreachable_peer(arm: Arm) -> None:
    """It names the peer and the reason, once."""
    pair = arm.pair()
    session = pair.session()
    arm.fail_next(pair.initiator, "RETRY_EXC", 0)
    _failed_with(arm, session.write(0, 0, 64, 0), "transport retry counter exceeded")
    event = pair.initiator.pop_peer_failure()
    assert event.remote_engine_key == pair.target.get_engine_desc().key
    assert event.reason == arm.mori.PeerFailureReason.PEER_UNREACHABLE
    assert (event.port_num, event.qp_num > 0, bool(event.device_name)) == (1, True, True)
    assert pair.initiator.pop_peer_failure() is None
    with pytest.raises(AttributeError):
        event.qp_num = 1


@case("0.4", "completions")
def the_root_cause_is_masked(arm: Arm) -> None:
    """When an earlier work request of a chain fails, the status only says flushed."""
    for name, alive in (("REM_ACCESS", True), ("RETRY_EXC", False)):
        pair = arm.pair()
        session = pair.session()
        arm.fail_next(pair.initiator, name, 0)
        status = session.batch_write([0, 128, 256], [0, 128, 256], [8, 8, 8], 0)
        _failed_with(arm, status, FLUSHED)
        assert session.alive() is alive
        assert (pair.initiator.pop_peer_failure() is None) is alive
    pair = arm.pair()
    arm.fail_next(pair.initiator, "REM_ACCESS", 2)
    status = pair.session().batch_write([0, 128, 256], [0, 128, 256], [8, 8, 8], 0)
    _failed_with(arm, status, "remote access error")


@case("2.8", "completions")
def batches_behind_a_failure_are_flushed(arm: Arm) -> None:
    """Three queued batches behind one failing work request all say flushed."""
    pair = arm.pair(size=8 << 20)
    session = pair.session()
    arm.fail_next(pair.initiator, "REM_OP", 0)
    first = session.write(0, 0, 8 << 20, 0)
    behind = [session.batch_write([0, 128], [0, 128], [8, 8], uid) for uid in (1, 2, 3)]
    _failed_with(arm, first, "remote operation error")
    for status in behind:
        _failed_with(arm, status, FLUSHED)


@case("0.5", "completions")
def one_error_kills_the_queue_pair_for_everybody(arm: Arm) -> None:
    """Older sessions, new ones and the reverse direction."""
    pair = arm.pair()
    first, second, reverse = pair.session(), pair.session(), pair.reverse_session()
    assert finished(second.write(0, 0, 8, 0)).Succeeded()
    assert finished(reverse.write(0, 0, 8, 0)).Succeeded()
    arm.fail_next(pair.initiator, "REM_ACCESS", 0)
    finished(first.write(0, 0, 8, 1))
    for session in (second, pair.session()):
        assert session.alive()
        _failed_with(arm, session.write(0, 0, 8, 2), FLUSHED)
    assert finished(reverse.write(0, 0, 8, 1)).Failed()


@case("0.9", "completions")
def a_lost_completion_is_waited_for_for_ever(arm: Arm) -> None:
    """The bytes are there, and the status stays in progress."""
    pair = arm.pair()
    pair.local.fill_(3)
    session = pair.session()
    arm.lose_next_completion(pair.initiator)
    status = session.write(0, 0, 64, 0)
    status.WaitFor(3_000)
    assert status.InProgress()
    assert pair.remote[:64].eq(3).all()
    assert session.alive()
    assert finished(session.write(64, 64, 64, 1)).Succeeded()


@case("2.7", "posts")
def a_provider_that_refuses_everything_leaves_the_queue_pair_usable(arm: Arm) -> None:
    """Nothing was posted, so nothing is lost."""
    pair = arm.pair()
    session = pair.session()
    arm.refuse_next_post(pair.initiator, 0)
    status = session.batch_write([0, 128, 256], [0, 128, 256], [8] * 3, 0)
    text = "ibv_post_send failed with 12: Cannot allocate memory (posted 0/3 WRs)"
    _failed_with(arm, status, text)
    assert finished(session.write(0, 0, 8, 1)).Succeeded()


@case("2.7", "posts")
def a_provider_that_takes_a_part_degrades_the_endpoint(arm: Arm) -> None:
    """For good, and alive() stays True."""
    pair = arm.pair()
    session = pair.session()
    arm.refuse_next_post(pair.initiator, 2)
    status = session.batch_write([0, 128, 256], [0, 128, 256], [8] * 3, 0)
    text = "ibv_post_send failed with 12: Cannot allocate memory (posted 2/3 WRs)"
    _failed_with(arm, status, text)
    arm.sleep(1)
    _failed_with(arm, session.write(0, 0, 8, 1), "EP is degraded, rejecting new submissions")
    assert session.alive()


@case("2.9", "events", "completions")
def queue_pair_events_fail_what_is_in_flight(arm: Arm) -> None:
    """Statuses say which event; the session is dead and refuses."""
    for name in ("QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR"):
        pair = arm.pair()
        session = pair.session()
        arm.hold(pair.initiator, 5)
        status = session.write(0, 0, 64, 0)
        arm.raise_event(pair.initiator, name)
        text = f"verbs async event IBV_EVENT_{name}: queue pair entered Error state and must be "
        _failed_with(arm, status, f"{text}rebuilt before it can carry traffic again")
        assert not session.alive()
        event = pair.initiator.pop_peer_failure()
        assert event.reason == arm.mori.PeerFailureReason.LOCAL_QP_ERROR
        assert event.remote_engine_key == pair.target.get_engine_desc().key
        assert (event.port_num, event.qp_num > 0) == (1, True)
        text = "EP is degraded, rejecting new submissions"
        _failed_with(arm, session.write(0, 0, 64, 1), text)


@case("2.9", "events", "completions")
def device_events_fail_every_queue_pair(arm: Arm) -> None:
    """The events carry no key and no queue pair."""
    for name, reason, text in (
        ("CQ_ERR", "LOCAL_CQ_ERROR", "completion queue failed"),
        ("DEVICE_FATAL", "LOCAL_DEVICE_FATAL", "device reported a fatal error affecting every"),
    ):
        pair = arm.pair()
        session = pair.session()
        arm.hold(pair.initiator, 5)
        status = session.write(0, 0, 64, 0)
        arm.raise_event(pair.initiator, name)
        _failed_with(arm, status, f"verbs async event IBV_EVENT_{name}: {text}")
        assert not session.alive()
        event = pair.initiator.pop_peer_failure()
        assert event.reason == getattr(arm.mori.PeerFailureReason, reason)
        assert (event.remote_engine_key, event.qp_num) == ("", 0)


@case("2.9", "events")
def port_events_change_only_alive(arm: Arm) -> None:
    """Transfers are accepted and complete; the port coming back makes sessions alive again."""
    pair = arm.pair()
    session = pair.session()
    arm.raise_event(pair.initiator, "PORT_ERR")
    arm.sleep(0.1)
    assert not session.alive()
    event = pair.initiator.pop_peer_failure()
    assert (event.reason, event.port_num) == (arm.mori.PeerFailureReason.LOCAL_PORT_DOWN, 1)
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
    arm.raise_event(pair.initiator, "PORT_ACTIVE")
    arm.raise_event(pair.initiator, "GID_CHANGE")
    arm.sleep(0.1)
    assert session.alive()
    assert pair.initiator.pop_peer_failure() is None


@case("2.10", "processes")
def a_dead_peer_is_noticed_after_the_retry_budget(arm: Arm) -> None:
    """About half a second; then everything is flushed; new connections are refused."""
    pair = arm.pair()
    session = pair.session()
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
    arm.crash_target(pair)
    began = arm.seconds()
    _failed_with(arm, session.write(0, 0, 64, 1), "transport retry counter exceeded")
    assert 0.4 < arm.seconds() - began < 1.5
    assert not session.alive()
    reason = pair.initiator.pop_peer_failure().reason
    assert reason == arm.mori.PeerFailureReason.PEER_UNREACHABLE
    _failed_with(arm, session.write(0, 0, 64, 2), FLUSHED)


@case("2.10", "processes")
def a_dead_peer_refuses_connections(arm: Arm) -> None:
    """A session that needs the control plane raises."""
    pair = arm.pair()
    arm.crash_target(pair)
    with pytest.raises(RuntimeError, match=r"connect\(.*\): Connection refused"):
        pair.initiator.create_session(pair.local_desc, pair.remote_desc)


@case("0.7", "processes", "counts")
def a_restarted_peer_is_not_reachable_after_a_failure(arm: Arm) -> None:
    """Same key: no new queue pair, not alive at once, flushed; registering again does not help."""
    pair = arm.pair()
    session = pair.session()
    arm.crash_target(pair)
    finished(session.write(0, 0, 64, 0))
    arm.restart_target(pair)
    desc = pair.target.get_engine_desc()
    pair.initiator.deregister_remote_engine(desc)
    pair.initiator.register_remote_engine(desc)
    again = pair.session()
    assert not again.alive()
    _failed_with(arm, again.write(0, 0, 64, 1), FLUSHED)
    assert (arm.queue_pairs(pair.initiator), arm.queue_pairs(pair.target)) == (1, 0)


@case("2.10", "processes")
def a_restarted_peer_of_an_idle_engine(arm: Arm) -> None:
    """The session looks alive, and its first transfer runs into the stale queue pair."""
    pair = arm.pair()
    pair.session()
    arm.crash_target(pair)
    arm.restart_target(pair)
    pair.initiator.register_remote_engine(pair.target.get_engine_desc())
    session = pair.session()
    assert session.alive()
    status = session.write(0, 0, 64, 0)
    _failed_with(arm, status, "transport retry counter exceeded")
    assert not session.alive()


@case("2.10", "completions")
def removing_the_backend_forgets_what_is_in_flight(arm: Arm) -> None:
    """The status stays in progress; calls without sessions find no backend."""
    pair = arm.pair()
    session = pair.session()
    arm.hold(pair.initiator, 1)
    status = session.write(0, 0, 64, 0)
    pair.initiator.remove_backend(arm.mori.BackendType.RDMA)
    status.WaitFor(3_000)
    assert status.InProgress()
    late = pair.initiator.write(pair.local_desc, 0, pair.remote_desc, 0, 8, 1)
    assert late.Code() == arm.mori.StatusCode.ERR_BAD_STATE


@case("2.4", "control-plane")
def a_silent_peer_holds_the_gil_until_the_control_timeout(arm: Arm) -> None:
    """Five seconds in which no other thread of the process runs, then RuntimeError."""
    pair = arm.pair()
    arm.mute_target(pair)
    ticks: list[float] = []

    def tick() -> None:
        for _ in range(10):
            ticks.append(arm.seconds())
            arm.sleep(0.2)

    join = arm.thread(tick)
    arm.sleep(0.05)
    began = arm.seconds()
    with pytest.raises(RuntimeError, match=r"ReadMessageHeader\(type\) failed.*errno=11"):
        pair.initiator.create_session(pair.local_desc, pair.remote_desc)
    ended = arm.seconds()
    assert 4.9 < ended - began < 6
    assert [t for t in ticks if began < t < ended - 0.1] == []  # then it waits for the lock
    join()
    assert len(ticks) == 10


@case("2.4", "control-plane")
def transfers_without_sessions_raise_the_same(arm: Arm) -> None:
    """An engine-level call has to connect first, so it can raise."""
    pair = arm.pair()
    arm.mute_target(pair)
    with pytest.raises(RuntimeError, match="ReadMessageHeader"):
        pair.initiator.write(pair.local_desc, 0, pair.remote_desc, 0, 8, 0)


@case("2.7", "completions")
def waiting_for_room_lets_other_threads_run(arm: Arm) -> None:
    """A posting call that blocks has released the GIL."""
    pair = arm.pair(max_send_wr=4)
    session = pair.session()
    arm.hold(pair.initiator, 60)
    session.batch_write([0, 128, 256, 384], [0, 128, 256, 384], [8] * 4, 0)
    ticks: list[float] = []

    def tick() -> None:
        for _ in range(10):
            ticks.append(arm.seconds())
            arm.sleep(0.2)

    join = arm.thread(tick)
    began = arm.seconds()
    assert session.write(0, 0, 8, 1).Failed()
    assert len([t for t in ticks if began < t < arm.seconds()]) >= 9
    join()


@case("1.6", over=("gpu-rdma", "xgmi"))
def statuses_and_sessions_of_torch_memory_survive_their_descriptors(arm: Arm) -> None:
    """A session does not need the descriptors it was made from any more."""
    pair = arm.pair()
    session = pair.session()
    pair.local_desc = pair.remote_desc = None
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
    assert torch.equal(pair.local[:64].cpu(), pair.remote[:64].cpu())
