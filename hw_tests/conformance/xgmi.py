"""Conformance of ``mori.io``: copies between GPUs of one machine, and who carries what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from hw_tests.conformance.arm import Arm, Cases, Pair

case = Cases()

SIZE = 1 << 20


def _finished(status: Any) -> Any:
    status.Wait()
    assert not status.InProgress()
    return status


def _pattern() -> torch.Tensor:
    return (torch.arange(SIZE) * 31 % 251).to(torch.uint8)


def _from_elsewhere(arm: Arm, engine: Any) -> Any:
    """The descriptor of ``engine`` as if it ran on another machine."""
    fields = msgspec.msgpack.decode(engine.get_engine_desc().pack())
    fields[1:3] = ["another-node", "another-host"]
    return arm.mori.EngineDesc.unpack(msgspec.msgpack.encode(fields))


@case("2.15", "xgmi")
def copies_move_the_bytes_they_name(arm: Arm) -> None:
    """Both ways, single and in batches; success has an empty message."""
    pair = arm.gpu_pair(SIZE)
    pair.local.copy_(_pattern().to(pair.local.device))
    session = pair.session()
    status = _finished(session.batch_write([0, 200], [1000, 3000], [100, 50], 0))
    assert (status.Succeeded(), status.Message()) == (True, "")
    assert torch.equal(pair.remote[1000:1100].cpu(), pair.local[:100].cpu())
    assert torch.equal(pair.remote[3000:3050].cpu(), pair.local[200:250].cpu())
    assert not pair.remote[:1000].any()
    pair.remote.fill_(7)
    assert _finished(session.read(10, 20, 30, 1)).Succeeded()
    assert pair.local[10:40].eq(7).all()
    assert int(pair.local[40]) == 40 * 31 % 251
    status = session.batch_read([], [], [], 2)
    assert (status.Succeeded(), status.Message()) == (True, "")


@case("2.15", "xgmi")
def the_end_is_noticed_when_somebody_asks(arm: Arm) -> None:
    """Each of the status methods does, a moment later, and so do waits of every kind."""
    pair = arm.gpu_pair(SIZE)
    session, code = pair.session(), arm.mori.StatusCode
    asks: list[Callable[[Any], Any]] = [
        lambda status: status.Code() == code.SUCCESS,
        lambda status: status.Succeeded(),
        lambda status: not status.InProgress(),
        lambda status: not status.Failed() and status.Succeeded(),
        lambda status: (status.WaitFor(0), status.Succeeded())[1],
        lambda status: pair.initiator.wait_all([status], 0) == code.SUCCESS,
    ]
    for uid, ask in enumerate(asks):
        status = session.write(0, 0, SIZE, uid)
        arm.sleep(0.05)
        assert ask(status)
    waits: list[Callable[[Any], Any]] = [
        lambda status: status.Wait(),
        lambda status: status.WaitFor(-1),
        lambda status: pair.initiator.wait_all([status]),
    ]
    for uid, wait in enumerate(waits):
        status = session.write(0, 0, SIZE, uid)
        assert status.InProgress()
        began = arm.seconds()
        wait(status)
        assert arm.seconds() - began < 0.05
        assert status.Succeeded()


@case("2.15", "xgmi")
def a_bounded_wait_ends_by_its_deadline(arm: Arm) -> None:
    """With the copies done, however late that is noticed within the time."""
    pair = arm.gpu_pair(SIZE)
    status = pair.session().write(0, 0, SIZE, 0)
    began = arm.seconds()
    status.WaitFor(100)
    assert arm.seconds() - began < 0.5
    assert status.Succeeded()


@case("2.15", "xgmi")
def alive_is_always_true(arm: Arm) -> None:
    """Sessions have nothing to look at."""
    assert arm.gpu_pair(SIZE).session().alive()


@case("2.15", "xgmi", "processes")
def alive_is_true_when_the_peer_is_gone(arm: Arm) -> None:
    """As long as the initiator lives."""
    pair = arm.gpu_pair(SIZE)
    session = pair.session()
    arm.crash_target(pair)
    assert session.alive()


@case("2.12", "xgmi")
def copies_notify_nobody(arm: Arm) -> None:
    """The target has to be told by other means."""
    pair = arm.gpu_pair(SIZE)
    assert _finished(pair.session().write(0, 0, 64, 0)).Succeeded()
    arm.sleep(0.01)
    key = pair.initiator.get_engine_desc().key
    assert pair.target.pop_inbound_transfer_status(key, 0) is None


@case("2.15", "xgmi")
def host_memory_is_not_carried(arm: Arm) -> None:
    """Neither side may be host memory."""
    pair = arm.gpu_pair(SIZE)
    host = pair.initiator.register_torch_tensor(torch.zeros(64, dtype=torch.uint8))
    assert pair.initiator.create_session(host, pair.remote_desc) is None
    status = pair.initiator.write(host, 0, pair.remote_desc, 0, 8, 0)
    assert status.Code() == arm.mori.StatusCode.ERR_BAD_STATE
    assert status.Message() == "No available backend found, create backend first"


@case("2.4", "xgmi")
def only_the_same_machine_is_reached(arm: Arm) -> None:
    """The node identity of the registered descriptor decides."""
    pair = arm.gpu_pair(SIZE)
    pair.initiator.register_remote_engine(_from_elsewhere(arm, pair.target))
    assert pair.initiator.create_session(pair.local_desc, pair.remote_desc) is None
    pair.initiator.register_remote_engine(pair.target.get_engine_desc())
    assert pair.initiator.create_session(pair.local_desc, pair.remote_desc) is not None
    pair.initiator.deregister_remote_engine(pair.target.get_engine_desc())
    assert pair.initiator.create_session(pair.local_desc, pair.remote_desc) is None


@case("2.15", "xgmi")
def parts_of_an_allocation_begin_where_they_begin(arm: Arm) -> None:
    """The handle is that of the whole; the descriptor carries the offset."""
    pair = arm.gpu_pair(SIZE)
    pair.local.fill_(5)
    part = arm.register_gpu(pair.target, pair.remote[4096:8192])
    session = pair.initiator.create_session(pair.local_desc, part)
    assert _finished(session.write(0, 10, 20, 0)).Succeeded()
    assert pair.remote[4106:4126].eq(5).all()
    assert int(pair.remote.count_nonzero()) == 20


@case("2.15", "xgmi")
def nothing_is_checked_against_the_registered_size(arm: Arm) -> None:
    """A copy past the end of a part reaches its neighbour and succeeds."""
    pair = arm.gpu_pair(SIZE)
    pair.local.fill_(5)
    part = arm.register_gpu(pair.target, pair.remote[4096:8192])
    session = pair.initiator.create_session(pair.local_desc, part)
    assert _finished(session.write(0, 4000, 1000, 0)).Succeeded()
    assert pair.remote[8192:9096].eq(5).all()


@case("2.15", "xgmi")
def transfers_without_sessions_go_over_xgmi_too(arm: Arm) -> None:
    """One status for each outer item."""
    pair = arm.gpu_pair(SIZE)
    pair.local.fill_(5)
    engine, here, there = pair.initiator, pair.local_desc, pair.remote_desc
    statuses = engine.batch_write(
        [here, here], [[0, 64], [128]], [there, there], [[0, 64], [128]], [[8, 8], [8]], [0, 1]
    )
    assert [_finished(status).Succeeded() for status in statuses] == [True, True]
    assert _finished(engine.write(here, 0, there, 256, 8, 2)).Succeeded()
    assert int(pair.remote.count_nonzero()) == 32


@case("2.15", "xgmi")
def the_own_memory_of_an_engine_is_reached(arm: Arm) -> None:
    """Without registering the engine with itself."""
    pair = arm.gpu_pair(SIZE)
    pair.local[:64].fill_(5)
    session = pair.initiator.create_session(pair.local_desc, pair.local_desc)
    assert _finished(session.write(0, 4096, 64, 0)).Succeeded()
    assert pair.local[4096:4160].eq(5).all()


@case("2.15", "xgmi", "copies")
def items_are_merged_when_both_sides_are_contiguous(arm: Arm) -> None:
    """And only then, unlike over RDMA; the order of the list does not matter."""
    pair = arm.gpu_pair(SIZE)
    session = pair.session()
    apart = [i * 8192 for i in range(64)]
    contiguous = [i * 4096 for i in range(64)]
    for local, remote, copies in (
        (apart, apart, 64),
        (contiguous, contiguous, 1),
        (contiguous[::-1], contiguous[::-1], 1),
        (apart, contiguous, 64),
        (contiguous, apart, 64),
    ):
        before = arm.copies(pair.initiator)
        assert _finished(session.batch_write(local, remote, [4096] * 64, 0)).Succeeded()
        assert arm.copies(pair.initiator) - before == copies


@case("2.15", "xgmi", "copies")
def errors_name_the_backend(arm: Arm) -> None:
    """ERR_GPU_OP for what the driver refuses or reports later, ERR_BAD_STATE without a stream."""
    code = arm.mori.StatusCode
    for kind, expected in (
        ("refused", code.ERR_GPU_OP),
        ("failed", code.ERR_GPU_OP),
        ("no-stream", code.ERR_BAD_STATE),
    ):
        pair = arm.gpu_pair(SIZE)
        session = pair.session()
        arm.fail_next_copy(pair.initiator, kind)
        status = _finished(session.write(0, 0, 64, 0))
        assert status.Code() == expected
        assert status.Message().startswith("XGMI: ")
        assert session.alive()
        assert pair.initiator.pop_peer_failure() is None
        assert _finished(session.write(0, 0, 64, 1)).Succeeded()


# --------------------------------------------------------------------- routing


def _carrier(session: Any) -> str:
    """Success over RDMA has a text, over XGMI it has none."""
    message = _finished(session.write(0, 0, 64, 0)).Message()
    return {"success": "RDMA", "": "XGMI"}[message]


@case("2.4", "xgmi", "gpu-rdma")
def xgmi_goes_before_rdma(arm: Arm) -> None:
    """Whichever was created first; what XGMI cannot carry goes over RDMA."""
    for backends in (("RDMA", "XGMI"), ("XGMI", "RDMA")):
        pair = arm.gpu_pair(SIZE, backends=backends)
        assert _carrier(pair.session()) == "XGMI"
        host = pair.initiator.register_torch_tensor(torch.zeros(64, dtype=torch.uint8))
        assert _carrier(pair.initiator.create_session(host, pair.remote_desc)) == "RDMA"


def _register_again(arm: Arm, pair: Pair) -> None:
    """Make memory and peers known to backends that came later."""
    pair.initiator.register_remote_engine(pair.target.get_engine_desc())
    pair.local_desc = arm.register_gpu(pair.initiator, pair.local)
    pair.remote_desc = arm.register_gpu(pair.target, pair.remote)


@case("2.4", "xgmi", "gpu-rdma")
def a_route_once_taken_is_taken_again(arm: Arm) -> None:
    """An XGMI backend that comes later carries new devices only, until RDMA cannot any more."""
    pair = arm.gpu_pair(SIZE, backends=("RDMA",))
    assert _carrier(pair.session()) == "RDMA"
    kind = arm.mori.BackendType.XGMI
    for engine in (pair.initiator, pair.target):
        engine.create_backend(kind, arm.mori.XgmiBackendConfig())
    _register_again(arm, pair)
    assert _carrier(pair.session()) == "RDMA"
    pair.initiator.remove_backend(arm.mori.BackendType.RDMA)
    assert _carrier(pair.session()) == "XGMI"


@case("2.4", "no-device")
def without_a_device_there_is_no_rdma(arm: Arm) -> None:
    """Creating it raises, unless falling back to XGMI is allowed."""
    engine = arm.engine_without_rdma("e", fall_back=False)
    with pytest.raises(RuntimeError, match=r"^no active RDMA device on this host; "):
        engine.create_backend(arm.mori.BackendType.RDMA, arm.mori.RdmaBackendConfig())


@case("2.4", "no-device", "xgmi")
def falling_back_to_xgmi(arm: Arm) -> None:
    """The descriptor carries port 1, which RDMA elsewhere knows better than to connect to."""
    engine = arm.engine_without_rdma("e", fall_back=True)
    engine.create_backend(arm.mori.BackendType.RDMA, arm.mori.RdmaBackendConfig())
    desc = engine.get_engine_desc()
    assert desc.port == 1
    pair = arm.pair()
    pair.initiator.register_remote_engine(desc)
    host = torch.zeros(64, dtype=torch.uint8)
    assert (
        pair.initiator.create_session(pair.local_desc, engine.register_torch_tensor(host)) is None
    )
    buffer = arm.gpu_buffer(64)
    here = arm.register_gpu(engine, buffer)
    session = engine.create_session(here, here)
    assert _finished(session.write(0, 32, 8, 0)).Succeeded()
