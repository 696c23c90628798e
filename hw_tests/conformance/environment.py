"""Conformance of ``mori.io``: its threads, and the variables of the environment it obeys."""

from __future__ import annotations

from hw_tests.conformance.arm import Arm, Cases, finished

case = Cases()

_THREADS = 3
"""Of an engine: completions, control plane, asynchronous events."""


@case("0.10", "operating-system")
def an_idle_engine_keeps_a_core_busy(arm: Arm) -> None:
    """One of its threads never sleeps, whether it polls or waits for events.

    How much processor time that is depends on who else wants some; that it always wants some
    does not.
    """
    kept = []  # an engine that is dropped stops
    assert arm.sleepless_threads() == 0
    for mode in (arm.mori.PollCqMode.POLLING, arm.mori.PollCqMode.EVENT):
        kept.append(arm.pair(poll_cq_mode=mode))
        assert arm.sleepless_threads() == 2
        for engine in (kept[-1].initiator, kept[-1].target):
            engine.remove_backend(arm.mori.BackendType.RDMA)
        assert arm.sleepless_threads() == 0


@case("2.1", "operating-system")
def an_engine_has_three_threads_and_its_workers(arm: Arm) -> None:
    """Workers are as many as queue pairs of a transfer, at most."""
    before = arm.num_threads()
    kept = [arm.pair()]
    assert arm.num_threads() - before == 2 * _THREADS
    before = arm.num_threads()
    kept.append(arm.pair(qp_per_transfer=4, num_worker_threads=8))
    assert arm.num_threads() - before == 2 * (_THREADS + 4)


def _written_for_a_session(arm: Arm, name: str, value: int) -> str:
    """With a variable of the environment."""
    arm.set_environment(name, str(value))
    pair, kept = arm.pair(), []
    return arm.written(lambda: kept.append(pair.session()))


@case("2.13", "operating-system")
def timers_and_retries_that_cannot_be_are_warned_of(arm: Arm) -> None:
    """By name, value and range, under either name; so is a time-out of 0, which is for ever."""
    arm.set_environment("MORI_APP_LOG_LEVEL", "warn")  # by itself it tells of errors alone
    for suffix, most in (("TIMEOUT", 31), ("RETRY_CNT", 7), ("RNR_RETRY", 7),
                         ("MIN_RNR_TIMER", 31)):  # fmt: skip
        for name in (f"MORI_RDMA_QP_{suffix}", f"MORI_IO_QP_{suffix}"):
            warning = f"Ignore invalid {name}={most + 1} (allowed: 0-{most})"
            assert warning in _written_for_a_session(arm, name, most + 1)
            assert "Ignore invalid" not in _written_for_a_session(arm, name, most)
    stalls = "stall transfers indefinitely"
    assert stalls not in _written_for_a_session(arm, "MORI_IO_QP_TIMEOUT", 1)
    assert stalls in _written_for_a_session(arm, "MORI_IO_QP_TIMEOUT", 0)


@case("2.13", "completions")
def the_wait_for_room_can_be_shortened(arm: Arm) -> None:
    """And the failure names the variable with its value."""
    arm.set_environment("MORI_IO_SQ_BACKOFF_TIMEOUT_US", "200000")
    pair = arm.pair(max_send_wr=16)
    session = pair.session()
    arm.hold(pair.initiator, 60)
    offsets = [i * 128 for i in range(16)]
    assert session.batch_write(offsets, offsets, [64] * 16, 0).InProgress()
    began = arm.seconds()
    status = session.write(0, 0, 64, 1)
    assert 0.19 < arm.seconds() - began < 2
    assert "MORI_IO_SQ_BACKOFF_TIMEOUT_US" in status.Message()
    assert "200000" in status.Message()


@case("2.13", "events", "completions")
def events_may_be_noticed_without_failing_what_is_in_flight(arm: Arm) -> None:
    """The session is dead and the failure is told; what is in flight stays so, unless the NIC
    flushes a queue pair that is in error, which the scripted one does not."""
    arm.set_environment("MORI_IO_FAIL_ON_ASYNC_EVENT", "0")
    reason = arm.mori.PeerFailureReason
    for name, told, may_flush in (
        ("QP_FATAL", reason.LOCAL_QP_ERROR, True),
        ("CQ_ERR", reason.LOCAL_CQ_ERROR, False),
        ("DEVICE_FATAL", reason.LOCAL_DEVICE_FATAL, False),
    ):
        pair = arm.pair()
        session = pair.session()
        arm.hold(pair.initiator, 60)
        status = session.write(0, 0, 64, 0)
        arm.raise_event(pair.initiator, name)
        arm.sleep(0.3)
        is_flushed = status.Message() == "Work Request Flushed Error"
        assert status.InProgress() or (may_flush and is_flushed), name
        assert not session.alive(), name
        assert pair.initiator.pop_peer_failure().reason == told, name


@case("2.13", "events")
def events_may_not_be_noticed_at_all(arm: Arm) -> None:
    """Sessions look alive and nothing is told."""
    arm.set_environment("MORI_IO_ENABLE_ASYNC_EVENTS", "0")
    pair = arm.pair()
    session = pair.session()
    arm.raise_event(pair.initiator, "PORT_ERR")
    arm.sleep(0.3)
    assert session.alive()
    assert pair.initiator.pop_peer_failure() is None
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
