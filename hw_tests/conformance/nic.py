"""Conformance of ``mori.io``: what the library asks of a NIC, and what it does not ask."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from hw_tests.conformance.arm import Arm, Cases, finished

case = Cases()

_READ_WRITE_AND_ATOMICS = 0xF
_GIB = 1 << 30


@case("2.3", "counts")
def registering_asks_the_nic_for_nothing(arm: Arm) -> None:
    """A session does, on both sides; another one of the same memory does not again."""
    pair = arm.pair()
    both = (pair.initiator, pair.target)
    assert [arm.memory_regions(engine) for engine in both] == [(0, 0), (0, 0)]
    pair.session()
    made = [arm.memory_regions(engine) for engine in both]
    assert all(asked == left > 0 for asked, left in made)
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    assert [arm.memory_regions(engine) for engine in both] == made


@case("2.3", "counts")
def of_two_registrations_of_one_address_one_is_never_given_back(arm: Arm) -> None:
    """The session of the second makes another region; the second deregistration frees none."""
    pair = arm.pair()
    kept = [pair.session()]
    asked, _left = arm.memory_regions(pair.initiator)
    second = pair.initiator.register_torch_tensor(pair.local)
    kept.append(pair.initiator.create_session(second, pair.remote_desc))
    assert arm.memory_regions(pair.initiator) == (asked + 1, asked + 1)
    for desc in (second, pair.local_desc):
        pair.initiator.deregister_memory(desc)
        assert arm.memory_regions(pair.initiator) == (asked + 1, asked)


@case("2.3", "counts")
def keys_of_remote_memory_are_asked_for_once(arm: Arm) -> None:
    """What the target has forgotten meanwhile still gets a session, on which nothing works."""
    pair = arm.pair()
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    asked, left = arm.memory_regions(pair.target)
    pair.target.deregister_memory(pair.remote_desc)
    again = pair.session()
    assert arm.memory_regions(pair.target) == (asked, left - 1)
    assert finished(again.write(0, 0, 64, 1)).Message().startswith("remote access error")


@case("0.7", "counts", "processes")
def a_restarted_peer_is_not_asked_for_its_keys(arm: Arm) -> None:
    """Those of its earlier life are taken for good."""
    pair = arm.pair()
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    arm.crash_target(pair)
    arm.restart_target(pair)
    pair.initiator.register_remote_engine(pair.target.get_engine_desc())
    pair.session()
    assert arm.memory_regions(pair.target) == (0, 0)


@case("2.3", "completions")
def what_is_queued_fails_when_its_memory_goes(arm: Arm) -> None:
    """Deregistering waits for nothing; what has not left by then is a local protection error."""
    for _ in range(20):  # until one is quicker than the NIC, which a real one may never let us be
        pair = arm.pair()
        status = pair.session().write(0, 0, 64, 0)
        pair.initiator.deregister_memory(pair.local_desc)
        if finished(status).Failed():
            break
    assert status.Message().startswith("local protection error")


@case("2.5", "attributes")
def queue_pairs_are_made_with_these_attributes(arm: Arm) -> None:
    """Receives and inline data are for notifications."""
    for notifies, receives, inline in ((1, 1024, 64), (0, 8192, 0)):
        pair = arm.pair(enable_notification=notifies)
        assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
        assert arm.asked_of_the_nic(pair.initiator) == {
            "max_send_wr": 8192,
            "max_recv_wr": receives,
            "max_cqe": 16384,
            "max_sge": 4,
            "max_inline": inline,
            "path_mtu": 5,  # 4096 bytes, which the port has
            "hop_limit": 16,
            "min_rnr_timer": 12,
            "timeout": 14,
            "retry_count": 7,
            "rnr_retry": 7,
            "max_rd_atomic": 16,  # the device's limit
            "region_access": _READ_WRITE_AND_ATOMICS,
        }


@case("2.13", "attributes")
def timers_and_retries_are_those_of_the_environment(arm: Arm) -> None:
    """Under either name, the library's own first; what is out of range leaves the default."""
    for suffix, name, most, default in (
        ("TIMEOUT", "timeout", 31, 14),
        ("RETRY_CNT", "retry_count", 7, 7),
        ("RNR_RETRY", "rnr_retry", 7, 7),
        ("MIN_RNR_TIMER", "min_rnr_timer", 31, 12),
    ):
        for prefix, value, expected in (
            ("MORI_RDMA_QP", 3, 3),
            ("MORI_IO_QP", 5, 5),
            ("MORI_IO_QP", 0, 0),
            ("MORI_IO_QP", most + 1, default),
        ):
            arm.set_environment(f"{prefix}_{suffix}", str(value))
            pair = arm.pair()
            pair.session()
            assert arm.asked_of_the_nic(pair.initiator)[name] == expected, (prefix, suffix, value)


@case("2.6", "completions")
def requests_that_no_nic_takes_are_refused(arm: Arm) -> None:
    """Of 4 GiB; of more than the port carries in one message, with the place, size and limit."""
    pair = arm.pair()
    place = arm.mori.MemoryLocationType.CPU
    local, remote = (  # much of which is not there: no real NIC would take it
        engine.register_memory(tensor.data_ptr(), 5 * _GIB, -1, place)
        for engine, tensor in ((pair.initiator, pair.local), (pair.target, pair.remote))
    )
    session = pair.initiator.create_session(local, remote)
    code = arm.mori.StatusCode.ERR_INVALID_ARGS
    for size, text in (
        (4 * _GIB, f"single request size {4 * _GIB} exceeds UINT32_MAX"),
        (3 * _GIB, f"merged RDMA WR 0 length {3 * _GIB} exceeds local max_msg_sz "),
    ):
        status = session.write(0, 0, size, 0)
        assert (status.Code(), status.Message()[: len(text)]) == (code, text)


@case("1.6", "operating-system")
def a_backend_without_a_name_ends_the_process(arm: Arm) -> None:
    """TCP, too, if it comes with a configuration."""
    for kind in (arm.mori.BackendType.TCP, arm.mori.BackendType.Unknown):
        if (child := os.fork()) == 0:
            arm.engine("e").create_backend(kind, arm.mori.RdmaBackendConfig())
            os._exit(0)
        _child, how = os.waitpid(child, 0)
        assert os.WIFSIGNALED(how)
        assert os.WTERMSIG(how) == signal.SIGABRT


@case("2.4", "processes")
def transfers_without_sessions_tell_that_nobody_listens(arm: Arm) -> None:
    """By an error, whichever it is; there is no status that could be asked."""
    pair = arm.pair()
    engine, here, there = pair.initiator, pair.local_desc, pair.remote_desc
    arm.crash_target(pair)
    calls: list[Callable[[], Any]] = [
        lambda: engine.read(here, 0, there, 0, 8, 0),
        lambda: engine.write(here, 0, there, 0, 8, 0),
        lambda: engine.batch_read([here], [[0]], [there], [[0]], [[8]], [0]),
        lambda: engine.batch_write([here], [[0]], [there], [[0]], [[8]], [0]),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"connect\(.*\): Connection refused"):
            call()


@case("1.6", "completions")
def every_kind_of_call_lets_other_threads_run_while_it_waits(arm: Arm) -> None:
    """For room in the send queue."""
    arm.set_environment("MORI_IO_SQ_BACKOFF_TIMEOUT_US", "400000")
    pair = arm.pair(max_send_wr=4)
    session = pair.session()
    arm.hold(pair.initiator, 60)
    session.batch_write([0, 128, 256, 384], [0, 128, 256, 384], [8] * 4, 0)
    calls: list[Callable[[], Any]] = [
        lambda: session.read(0, 0, 8, 1),
        lambda: session.write(0, 0, 8, 2),
        lambda: session.batch_read([0], [0], [8], 3),
        lambda: session.batch_write([0], [0], [8], 4),
    ]
    for call in calls:
        ticks: list[float] = []

        def tick(ticks: list[float] = ticks) -> None:
            arm.sleep(0.05)
            ticks.append(arm.seconds())

        join = arm.thread(tick)
        assert call().Failed()
        ended = arm.seconds()
        join()
        assert ticks[0] < ended
