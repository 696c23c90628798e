"""Conformance of ``mori.io``: telling the target that a transfer is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hw_tests.conformance.arm import Arm, Cases, Pair, finished

case = Cases("gpu-rdma")


def _popped(arm: Arm, pair: Pair, uid: int) -> Any:
    """What the target learns, given a moment."""
    arm.sleep(0.2)  # seconds of a real clock, on which other threads run meanwhile
    key = pair.initiator.get_engine_desc().key
    return pair.target.pop_inbound_transfer_status(key, uid)


@case("2.12")
def the_target_learns_of_writes_and_reads(arm: Arm) -> None:
    """A SUCCESS status once all has arrived, for single transfers and batches."""
    pair = arm.pair(enable_notification=1, qp_per_transfer=2)
    session = pair.session()
    assert _popped(arm, pair, 0) is None
    calls: list[Callable[[int], Any]] = [
        lambda uid: session.write(0, 0, 64, uid),
        lambda uid: session.read(0, 0, 64, uid),
        lambda uid: session.batch_write([0, 128], [0, 128], [8, 8], uid),
        lambda uid: session.batch_read([0, 128], [0, 128], [8, 8], uid),
    ]
    for uid, call in enumerate(calls):
        assert finished(call(uid)).Succeeded()
        status = _popped(arm, pair, uid)
        assert (status.Succeeded(), status.Message()) == (True, "")


@case("2.12")
def popping_again_succeeds_again(arm: Arm) -> None:
    """Entries are never removed; unknown numbers and keys give None."""
    pair = arm.pair(enable_notification=1)
    assert finished(pair.session().write(0, 0, 64, 7)).Succeeded()
    for _ in range(3):
        assert _popped(arm, pair, 7).Succeeded()
    assert _popped(arm, pair, 8) is None
    assert pair.target.pop_inbound_transfer_status("nobody", 7) is None


@case("2.12")
def the_initiator_is_told_nothing(arm: Arm) -> None:
    """Only the other end counts what arrives."""
    pair = arm.pair(enable_notification=1)
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    key = pair.target.get_engine_desc().key
    assert pair.initiator.pop_inbound_transfer_status(key, 0) is None


@case("2.12", "counts")
def one_notification_for_each_queue_pair(arm: Arm) -> None:
    """A single 64-byte write on 4 queue pairs is 5 work requests in 5 posts."""
    pair = arm.pair(enable_notification=1, qp_per_transfer=4)
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    assert arm.posted(pair.initiator) == (5, 5)


@case("2.12", "counts")
def the_senders_configuration_decides(arm: Arm) -> None:
    """With notifications off nothing is sent, and the target never learns."""
    pair = arm.pair(enable_notification=0, target={"enable_notification": 1})
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    assert arm.posted(pair.initiator) == (1, 1)
    assert _popped(arm, pair, 0) is None


@case("2.12")
def more_transfers_than_posted_receives(arm: Arm) -> None:
    """Receives are posted again as they are used."""
    pair = arm.pair(enable_notification=1, notif_per_qp=2)
    session = pair.session()
    for uid in range(10):
        assert finished(session.write(0, 0, 64, uid)).Succeeded()
    assert [_popped(arm, pair, uid) is not None for uid in range(11)] == [True] * 10 + [False]


@case("2.12")
def a_number_used_twice_cannot_be_popped(arm: Arm) -> None:
    """Neither after the first use has been popped nor before."""
    pair = arm.pair(enable_notification=1)
    session = pair.session()
    assert finished(session.write(0, 0, 64, 3)).Succeeded()
    assert _popped(arm, pair, 3).Succeeded()
    for uid in (3, 4, 4):
        assert finished(session.write(0, 0, 64, uid)).Succeeded()
    assert (_popped(arm, pair, 3), _popped(arm, pair, 4)) == (None, None)


@case("2.12")
def a_target_without_receives_stalls_the_queue_pair(arm: Arm) -> None:
    """The transfer itself succeeds; the next one never ends, and no event says so."""
    pair = arm.pair(enable_notification=1, target={"enable_notification": 0})
    session = pair.session()
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
    behind = session.write(64, 64, 64, 1)
    behind.WaitFor(2_000)
    assert behind.InProgress()
    assert session.alive()
    assert pair.initiator.pop_peer_failure() is None


@case("2.2")
def the_target_need_not_know_whom_it_asks_about(arm: Arm) -> None:
    """What an initiator told can be popped although it was never registered here."""
    pair = arm.pair(enable_notification=1)
    pair.target.deregister_remote_engine(pair.initiator.get_engine_desc())
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    assert _popped(arm, pair, 0).Succeeded()


@case("2.12", "processes")
def numbers_of_a_restarted_peer_hit_old_entries(arm: Arm) -> None:
    """The new incarnation has sent nothing yet, and its transfer 0 counts as arrived."""
    pair = arm.pair(enable_notification=1)
    assert finished(pair.reverse_session().write(0, 0, 64, 0)).Succeeded()
    arm.sleep(0.2)  # seconds of a real clock, on which other threads run meanwhile
    arm.crash_target(pair)
    arm.restart_target(pair)
    key = pair.target.get_engine_desc().key
    pair.initiator.register_remote_engine(pair.target.get_engine_desc())
    assert pair.initiator.pop_inbound_transfer_status(key, 0).Succeeded()


@case("2.12", "posts")
def a_refused_notification_fails_a_transfer_that_lands(arm: Arm) -> None:
    """The status is an error, the bytes are there, the target is not told."""
    pair = arm.pair(enable_notification=1)
    pair.local.fill_(3)
    session = pair.session()
    arm.refuse_next_notification(pair.initiator)
    status = finished(session.write(0, 0, 64, 0))
    assert status.Code() == arm.mori.StatusCode.ERR_RDMA_OP
    assert status.Message().startswith("ibv_post_send (notify) failed with 12: Cannot allocate")
    assert _popped(arm, pair, 0) is None
    assert pair.remote[:64].eq(3).all()
    assert finished(session.write(0, 0, 64, 1)).Succeeded()
    assert _popped(arm, pair, 1).Succeeded()


@case("2.7", "completions")
def a_notification_needs_room_in_the_send_queue(arm: Arm) -> None:
    """It waits as data does, and then fails the transfer with a text of its own."""
    pair = arm.pair(enable_notification=1, max_send_wr=1)
    session = pair.session()
    arm.hold(pair.initiator, 60)
    began = arm.seconds()
    status = session.write(0, 0, 64, 0)
    assert 4.9 < arm.seconds() - began < 6
    assert status.Code() == arm.mori.StatusCode.ERR_RDMA_OP
    assert status.Message().startswith("SQ full (notify): ep=0 depth=1 requested=1 max=1 Hint: ")


@case("2.8", "completions")
def a_transfer_does_not_wait_for_its_notification(arm: Arm) -> None:
    """Only the data decides; the next transfer meets a dead queue pair."""
    pair = arm.pair(enable_notification=1)
    session = pair.session()
    arm.fail_next_notification(pair.initiator, "RNR_RETRY_EXC")
    assert finished(session.write(0, 0, 64, 0)).Succeeded()
    arm.sleep(0.2)  # seconds of a real clock, on which other threads run meanwhile
    assert session.alive()
    assert _popped(arm, pair, 0) is None
    assert finished(session.write(0, 0, 64, 1)).Message() == "Work Request Flushed Error"
