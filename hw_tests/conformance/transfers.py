"""Conformance of ``mori.io``: sessions, transfers, merging, rejections, memory, send queues."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hw_tests.conformance.arm import Arm, Cases, Pair, finished

case = Cases("gpu-rdma")


def _strided(count: int, size: int = 64, stride: int = 128) -> tuple[list[int], list[int]]:
    return [i * stride for i in range(count)], [size] * count


def _batch(session: Any, count: int, *, write: bool = True, uid: int | None = None) -> Any:
    offsets, sizes = _strided(count)
    call = session.batch_write if write else session.batch_read
    return call(offsets, offsets, sizes, session.allocate_transfer_uid() if uid is None else uid)


@case("0.1")
def posting_is_synchronous_and_completion_is_not(arm: Arm) -> None:
    """A posted call returns in progress; a refused one has failed already."""
    pair = arm.pair()
    session = pair.session()
    big = session.write(0, 0, pair.local.numel(), 0)
    assert big.InProgress()
    refused = session.write(0, 1, pair.local.numel(), 1)
    assert refused.Failed()
    assert finished(big).Succeeded()
    assert big.Message() == "success"


@case("1.6", over=("gpu-rdma", "xgmi"))
def reads_and_writes_move_the_bytes_they_name(arm: Arm) -> None:
    """In both directions, at the offsets given, and nothing else."""
    pair = arm.pair(size=4096)
    pair.local.copy_(torch.arange(4096) % 251)
    session = pair.session()
    assert finished(session.batch_write([0, 200], [1000, 3000], [100, 50], 0)).Succeeded()
    assert torch.equal(pair.remote[1000:1100].cpu(), pair.local[:100].cpu())
    assert torch.equal(pair.remote[3000:3050].cpu(), pair.local[200:250].cpu())
    assert int(pair.remote.count_nonzero()) == int(pair.remote[1000:3050].count_nonzero())
    pair.remote.fill_(7)
    assert finished(session.read(10, 20, 30, 1)).Succeeded()
    assert pair.local[10:40].eq(7).all()
    assert int(pair.local[40]) == 40


@case("1.6", over=("gpu-rdma", "xgmi"))
def many_unequal_segments(arm: Arm) -> None:
    """Unsorted offsets and differing sizes end where they belong."""
    pair = arm.pair(size=1 << 16)
    pair.remote.copy_(torch.arange(1 << 16) * 31 % 253)
    order = [i * 37 % 64 for i in range(64)]
    local = [i * 1000 for i in range(64)]
    remote = [i * 1000 for i in order]
    sizes = [100 + i % 5 for i in range(64)]
    status = pair.session().batch_read(local, remote, sizes, 0)
    assert finished(status).Succeeded()
    for here, there, size in zip(local, remote, sizes, strict=True):
        assert torch.equal(
            pair.local[here : here + size].cpu(), pair.remote[there : there + size].cpu()
        )


@case("1.6", over=("gpu-rdma", "xgmi"))
def transfer_ids_count_from_zero(arm: Arm) -> None:
    """Per engine, whether asked of the engine or of a session."""
    pair = arm.pair()
    session = pair.session()
    ids = [pair.initiator.allocate_transfer_uid(), session.allocate_transfer_uid()]
    assert ids == [0, 1]
    assert pair.target.allocate_transfer_uid() == 0


@case("1.6", over=("gpu-rdma", "xgmi"))
def bad_numbers_are_type_errors(arm: Arm) -> None:
    """Negative offsets and sizes never reach the NIC; a size of 0 is fine."""
    pair = arm.pair()
    session = pair.session()  # does not keep its engine alive
    for offset, size in ((-1, 1), (0, -1), (0.5, 1)):
        with pytest.raises(TypeError):
            session.batch_write([offset], [0], [size], 0)
    with pytest.raises(TypeError):
        session.write(0, -1, 1, 0)
    assert finished(session.write(0, 0, 0, 0)).Succeeded()
    assert finished(session.batch_write([0, 64], [0, 64], [0, 8], 1)).Succeeded()


@case("2.6")
def rejected_calls(arm: Arm) -> None:
    """Out of range, lists of different length, an empty batch."""
    pair = arm.pair(size=4096)
    session, code = pair.session(), arm.mori.StatusCode
    for status in (
        session.write(4000, 0, 100, 0),
        session.write(0, 4000, 100, 0),
        session.batch_read([0, 4090], [0, 0], [1, 10], 0),
    ):
        assert (status.Code(), status.Message()) == (code.ERR_INVALID_ARGS, "length out of range")
    status = session.batch_read([0, 1], [0], [1], 0)
    assert status.Code() == code.ERR_INVALID_ARGS
    assert status.Message() == "lengths of local offsets, remote offsets or sizes mismatch"
    status = session.batch_write([], [], [], 0)
    assert (status.Code(), status.Message()) == (code.SUCCESS, "")


@case("2.6", "counts")
def neighbours_are_merged(arm: Arm) -> None:
    """64 items: all apart, all contiguous, contiguous at the remote side only."""
    pair = arm.pair()
    session = pair.session()
    apart = [i * 8192 for i in range(64)]
    contiguous = [i * 4096 for i in range(64)]
    for local, remote, work_requests in (
        (apart, apart, 64),
        (contiguous, contiguous, 1),
        (apart, contiguous, 16),
        (contiguous, apart, 64),
    ):
        before = arm.posted(pair.initiator)[0]
        assert finished(session.batch_write(local, remote, [4096] * 64, 0)).Succeeded()
        assert arm.posted(pair.initiator)[0] - before == work_requests


@case("2.6", "counts")
def a_batch_is_spread_over_its_queue_pairs(arm: Arm) -> None:
    """10 work requests on 4 queue pairs are 4 posts; an explicit batch size makes chains of it."""
    for num_qps, batch_size, posts in ((4, -1, 4), (1, -1, 1), (1, 3, 4)):
        pair = arm.pair(qp_per_transfer=num_qps, post_batch_size=batch_size)
        assert finished(_batch(pair.session(), 10)).Succeeded()
        assert arm.posted(pair.initiator) == (10, posts)


@case("2.5", "counts")
def queue_pairs_belong_to_engines_not_to_sessions(arm: Arm) -> None:
    """Five sessions of 2 make 2, and a reverse session none."""
    pair = arm.pair(qp_per_transfer=2)
    for _ in range(5):
        assert finished(_batch(pair.session(), 4)).Succeeded()
    assert finished(_batch(pair.reverse_session(), 4)).Succeeded()
    assert (arm.queue_pairs(pair.initiator), arm.queue_pairs(pair.target)) == (2, 2)


@case("2.4", over=("gpu-rdma", "xgmi"))
def no_route_is_no_session(arm: Arm) -> None:
    """Unregistered peer, empty descriptor, no backend: None, and ERR_BAD_STATE without session."""
    pair = arm.pair()
    code, initiator = arm.mori.StatusCode, pair.initiator
    assert initiator.create_session(pair.local_desc, arm.mori.MemoryDesc()) is None
    initiator.deregister_remote_engine(pair.target.get_engine_desc())
    assert initiator.create_session(pair.local_desc, pair.remote_desc) is None
    status = initiator.write(pair.local_desc, 0, pair.remote_desc, 0, 1, 0)
    assert status.Code() == code.ERR_BAD_STATE
    assert status.Message() == "No available backend found, create backend first"
    bare = arm.engine("bare")
    memory = bare.register_torch_tensor(torch.zeros(8, dtype=torch.uint8))
    assert bare.create_session(memory, pair.remote_desc) is None


@case("2.2")
def only_the_initiator_has_to_know_its_peer(arm: Arm) -> None:
    """A write works although the target never registered the initiator."""
    pair = arm.pair()
    pair.target.deregister_remote_engine(pair.initiator.get_engine_desc())
    assert finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    assert pair.target.create_session(pair.remote_desc, pair.local_desc) is None


@case("2.2")
def a_new_backend_knows_nobody(arm: Arm) -> None:
    """After remove and create, peers must be registered again."""
    pair, kind = arm.pair(), arm.mori.BackendType.RDMA
    pair.initiator.remove_backend(kind)
    assert pair.initiator.create_session(pair.local_desc, pair.remote_desc) is None
    pair.initiator.create_backend(kind)
    local_desc = pair.initiator.register_torch_tensor(pair.local)
    assert pair.initiator.create_session(local_desc, pair.remote_desc) is None
    pair.initiator.register_remote_engine(pair.target.get_engine_desc())
    assert pair.initiator.create_session(local_desc, pair.remote_desc) is not None


@case("1.6", over=())
def unimplemented_backend(arm: Arm) -> None:
    """TCP without a configuration is not implemented."""
    with pytest.raises(NotImplementedError):
        arm.engine("e").create_backend(arm.mori.BackendType.TCP)


@case("1.6", over=())
def ports_are_real_after_the_backend_exists(arm: Arm) -> None:
    """Port 0 becomes an ephemeral one."""
    engine = arm.engine("e")
    assert engine.get_engine_desc().port == 0
    engine.create_backend(arm.mori.BackendType.RDMA, arm.mori.RdmaBackendConfig())
    assert engine.get_engine_desc().port > 0


@case("1.6", over=())
def tensors_must_be_contiguous(arm: Arm) -> None:
    """A strided view is refused."""
    engine = arm.engine("e")
    with pytest.raises(RuntimeError, match="input tensor must be contiguous"):
        engine.register_torch_tensor(torch.zeros(4, 4)[:, :2])


@case("1.6", over=("gpu-rdma", "xgmi"))
def transfers_without_sessions(arm: Arm) -> None:
    """One status per outer item; a rejected item ends the call and leaves the rest INIT."""
    pair = arm.pair(size=4096)
    pair.local.fill_(5)
    engine, here, there = pair.initiator, pair.local_desc, pair.remote_desc
    statuses = engine.batch_write(
        [here, here], [[0, 64], [128]], [there, there], [[0, 64], [128]], [[8, 8], [8]], [0, 1]
    )
    assert [str(finished(s).Code()) for s in statuses] == ["StatusCode.SUCCESS"] * 2
    assert int(pair.remote.count_nonzero()) == 24
    engine.deregister_remote_engine(pair.target.get_engine_desc())
    stranger = engine.register_torch_tensor(pair.local)
    statuses = engine.batch_read(
        [stranger] * 2, [[0], [0]], [there] * 2, [[0], [0]], [[1], [1]], [2, 3]
    )
    assert [int(s.Code()) for s in statuses] == [14, 1]


@case("2.3")
def memory_size_is_checked_when_the_session_is_made(arm: Arm) -> None:
    """A descriptor that the peer does not know, or knows otherwise, raises."""
    pair = arm.pair(size=4096)
    other = pair.target.register_torch_tensor(torch.zeros(100, dtype=torch.uint8))
    pair.target.deregister_memory(other)
    said = r"^RdmaBackend::CreateSession: remote MR size mismatch for engine .*got=0"
    with pytest.raises(RuntimeError, match=said):
        pair.initiator.create_session(pair.local_desc, other)


@case("2.3")
def deregistering_breaks_what_uses_the_memory(arm: Arm) -> None:
    """Remote access error at the remote side, local protection error at the local side."""
    for side, text in (("target", "remote access error"), ("initiator", "local protection error")):
        pair = arm.pair()
        session = pair.session()
        desc = pair.remote_desc if side == "target" else pair.local_desc
        getattr(pair, side).deregister_memory(desc)
        status = finished(session.write(0, 0, 64, 0))
        assert status.Code() == arm.mori.StatusCode.ERR_RDMA_OP
        assert status.Message().startswith(text)


@case("2.3")
def transfers_without_sessions_register_again(arm: Arm) -> None:
    """Deregistering drops the session that such calls had cached."""
    pair = arm.pair()
    engine, here, there = pair.initiator, pair.local_desc, pair.remote_desc
    assert finished(engine.write(here, 0, there, 0, 64, 0)).Succeeded()
    engine.deregister_memory(here)
    assert finished(engine.write(here, 0, there, 0, 64, 1)).Succeeded()


@case("2.3")
def two_registrations_of_one_address(arm: Arm) -> None:
    """Deregistering the second descriptor breaks the session of the first."""
    pair = arm.pair()
    first = pair.session()
    second_desc = pair.initiator.register_torch_tensor(pair.local)
    second = pair.initiator.create_session(second_desc, pair.remote_desc)
    pair.initiator.deregister_memory(second_desc)
    assert finished(second.write(0, 0, 64, 0)).Succeeded()
    assert finished(first.write(0, 0, 64, 1)).Message().startswith("local protection error")


@case("0.2", "completions")
def a_full_send_queue_blocks_the_caller(arm: Arm) -> None:
    """Five seconds, then a failure whose text says how full the queue is."""
    pair = arm.pair(max_send_wr=16)
    session = pair.session()
    arm.hold(pair.initiator, 60)
    assert _batch(session, 16).InProgress()
    began = arm.seconds()
    status = _batch(session, 3)
    assert 4.9 < arm.seconds() - began < 6
    assert status.Code() == arm.mori.StatusCode.ERR_RDMA_OP
    assert status.Message().startswith("SQ full (batch): ep=0 depth=16 requested=3 max=16 Hint: ")
    assert "MORI_IO_SQ_BACKOFF_TIMEOUT_US" in status.Message()


@case("2.7", "completions")
def room_that_appears_lets_the_caller_go_on(arm: Arm) -> None:
    """100 ms of no room are 100 ms of waiting, and then an ordinary success."""
    pair = arm.pair(max_send_wr=16)
    session = pair.session()
    arm.hold(pair.initiator, 0.1)
    _batch(session, 16)
    began = arm.seconds()
    status = _batch(session, 16)
    assert 0.09 < arm.seconds() - began < 1
    assert finished(status).Succeeded()


@case("0.3", "completions")
def a_failed_status_does_not_mean_that_nothing_moved(arm: Arm) -> None:
    """Of two queue pairs one is full: the call fails, and half of it lands."""
    pair = arm.pair(qp_per_transfer=2, max_send_wr=16)
    session = pair.session()
    pair.local.fill_(9)
    arm.hold(pair.initiator, 8)
    filler = [session.write(i * 128, i * 128, 8, 1) for i in range(16)]  # odd: the second one
    offsets = [100_000 + i * 128 for i in range(20)]
    status = session.batch_write(offsets, offsets, [8] * 20, 0)
    assert status.Message().startswith("SQ full (batch): ep=1 ")
    assert status.Code() == arm.mori.StatusCode.ERR_RDMA_OP
    assert all(finished(s).Succeeded() for s in filler)
    assert int(pair.remote[100_000:].count_nonzero()) == 80


@case("2.7")
def chains_of_minus_one_are_clamped_to_the_queue(arm: Arm) -> None:
    """More work requests than the queue holds succeed: the call waits for its own."""
    pair = arm.pair(max_send_wr=16)
    session = pair.session()
    for count in (17, 40, 64):
        assert finished(_batch(session, count)).Succeeded()


@case("2.7")
def a_batch_size_that_does_not_divide_the_depth_waits_for_itself(arm: Arm) -> None:
    """And what it posted before never gives its places back."""
    for batch, count, good in ((3, 17, False), (5, 40, False), (4, 40, True), (17, 40, True)):
        pair = arm.pair(max_send_wr=16, post_batch_size=batch)
        status = _batch(pair.session(), count)
        assert finished(status).Succeeded() is good, (batch, count)
        if not good:
            assert status.Message().startswith("SQ full (batch): ep=0 depth=15 ")
    session = pair.session()
    assert finished(session.write(0, 0, 8, 9)).Succeeded()


@case("2.7")
def lost_depth_stays_lost(arm: Arm) -> None:
    """A later full-depth batch fails on the idle queue; single items still work."""
    pair: Pair = arm.pair(max_send_wr=16, post_batch_size=3)
    session = pair.session()
    _batch(session, 17)
    arm.sleep(1)
    assert "depth=15" in finished(_batch(session, 16)).Message()
    assert finished(_batch(session, 1)).Succeeded()
    assert "depth=15" in finished(_batch(session, 16)).Message()
