"""Conformance of ``mori.io``: names, enumerations, descriptors, statuses, waiting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from hw_tests.conformance.arm import Arm, Cases

case = Cases()

NAMES = [
    *("IOEngine", "IOEngineSession", "EngineDesc", "MemoryDesc"),
    *("IOEngineConfig", "RdmaBackendConfig", "XgmiBackendConfig", "FabricBackendConfig"),
    *("BackendType", "MemoryLocationType", "StatusCode", "PollCqMode"),
    *("PeerFailureEvent", "PeerFailureReason", "set_log_level", "TORCH_DEVICE_TYPE_MAP"),
]
OF_FABRICS = [
    *("fabric_alloc", "fabric_free", "make_fabric_mem_pool", "fabric_mem_pool"),
    *("fabric_torch_allocator", "use_fabric_torch_allocator"),
]


@case("1.1")
def exports(arm: Arm) -> None:
    """The names callers import are there, and TransferStatus is not among them."""
    missing = [name for name in NAMES if not hasattr(arm.mori, name)]
    assert missing == []
    assert "TransferStatus" not in dir(arm.mori)


@case("1.1", "operating-system")
def memory_of_a_fabric_is_exported(arm: Arm) -> None:
    """Asked of a process of its own; the simulated library has no such memory, nor who wants it."""
    assert [name for name in OF_FABRICS if not hasattr(arm.mori, name)] == []


ENUMS = {
    "BackendType": {"Unknown": 0, "XGMI": 1, "RDMA": 2, "TCP": 3, "FABRIC": 4},
    "MemoryLocationType": {"Unknown": 0, "CPU": 1, "GPU": 2},
    "StatusCode": {
        "SUCCESS": 0,
        "INIT": 1,
        "IN_PROGRESS": 2,
        "ERR_INVALID_ARGS": 11,
        "ERR_NOT_FOUND": 12,
        "ERR_RDMA_OP": 13,
        "ERR_BAD_STATE": 14,
        "ERR_GPU_OP": 15,
    },
    "PollCqMode": {"POLLING": 0, "EVENT": 1},
    "PeerFailureReason": {
        "UNKNOWN": 0,
        "PEER_UNREACHABLE": 1,
        "LOCAL_QP_ERROR": 2,
        "LOCAL_PORT_DOWN": 3,
        "LOCAL_DEVICE_FATAL": 4,
        "LOCAL_CQ_ERROR": 5,
    },
}


@case("1.2")
def enum_values(arm: Arm) -> None:
    """Members have the library's numbers, and there are no others."""
    for name, members in ENUMS.items():
        found = getattr(arm.mori, name).__members__
        assert {member: int(value) for member, value in found.items()} == members


@case("1.2")
def enums_are_classic_pybind_ones(arm: Arm) -> None:
    """Not equal to numbers, convertible to them, printed with their class, hashable."""
    success = arm.mori.StatusCode.SUCCESS
    assert (success == 0) is False
    assert success != 0
    assert success == arm.mori.StatusCode(0)
    assert success != arm.mori.PollCqMode.POLLING
    assert str(success) == "StatusCode.SUCCESS"
    assert f"{success}" == "StatusCode.SUCCESS"
    assert {success: 1}[arm.mori.StatusCode.SUCCESS] == 1


@case("1.3")
def configuration_defaults(arm: Arm) -> None:
    """Positional order and defaults of the configuration classes."""
    rdma = arm.mori.RdmaBackendConfig(2, 16, 3, arm.mori.PollCqMode.EVENT, False)
    assert (rdma.qp_per_transfer, rdma.post_batch_size, rdma.num_worker_threads) == (2, 16, 3)
    assert (rdma.poll_cq_mode, rdma.enable_notification) == (arm.mori.PollCqMode.EVENT, False)
    default = arm.mori.RdmaBackendConfig()
    assert (default.qp_per_transfer, default.post_batch_size, default.num_worker_threads) == (
        1,
        -1,
        -1,
    )
    assert (default.enable_notification, default.notif_per_qp) == (True, 1024)
    assert (default.enable_transfer_chunking, default.chunk_bytes) == (False, 65536)
    assert (default.max_chunks_per_transfer, default.num_nics_per_transfer) == (64, 1)
    assert (default.max_send_wr, default.max_cqe_num, default.max_msg_sge) == (0, 0, 0)
    engine = arm.mori.IOEngineConfig()
    assert (engine.host, engine.port) == ("", 0)
    xgmi = arm.mori.XgmiBackendConfig()
    assert (xgmi.num_streams, xgmi.num_events) == (64, 64)
    with pytest.raises(TypeError):
        arm.mori.IOEngineConfig("127.0.0.1", 70000)


@case("1.4")
def engine_descriptor(arm: Arm) -> None:
    """Six fields, a msgpack array of them, comparable, not hashable, not constructible."""
    desc = arm.pair().initiator.get_engine_desc()
    fields = [desc.key, desc.node_id, desc.hostname, desc.host, desc.port, desc.pid]
    assert msgspec.msgpack.decode(desc.pack()) == fields
    assert arm.mori.EngineDesc.unpack(desc.pack()) == desc
    with pytest.raises(TypeError):
        hash(desc)
    with pytest.raises(TypeError):
        arm.mori.EngineDesc()
    with pytest.raises(AttributeError):
        desc.key = "other"


@case("1.4")
def memory_descriptor(arm: Arm) -> None:
    """Fifteen fields on the wire; ids count from 0 in every engine."""
    pair = arm.pair(size=4096)
    desc = pair.local_desc
    wire = msgspec.msgpack.decode(desc.pack())
    assert len(wire) == 15
    assert wire[0] == desc.engine_key == pair.initiator.get_engine_desc().key
    assert wire[1] == desc.id == pair.remote_desc.id == 0
    assert wire[4:7] == [desc.data, desc.size, int(desc.loc)]
    assert desc.data == pair.local.data_ptr()
    assert desc.size == 4096
    assert len(wire[7]) == len(desc.ipc_handle) == len(wire[10]) == 64
    assert wire[11:13] == [-1, ""]
    assert arm.mori.MemoryDesc.unpack(desc.pack()) == desc
    again = pair.initiator.register_torch_tensor(pair.local)
    assert again.id == 1
    with pytest.raises(TypeError):
        hash(desc)


@case("1.4")
def bad_descriptors(arm: Arm) -> None:
    """Anything else than a packed descriptor raises RuntimeError."""
    for wrong in (b"", b"\x01", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode(["k"] * 6)):
        with pytest.raises(RuntimeError):
            arm.mori.EngineDesc.unpack(wrong)
        with pytest.raises(RuntimeError):
            arm.mori.MemoryDesc.unpack(wrong)


@case("1.4")
def host_memory(arm: Arm) -> None:
    """Host memory has device -1 and no bus id."""
    pair = arm.pair()
    tensor = torch.zeros(64, dtype=torch.uint8)
    desc = pair.initiator.register_torch_tensor(tensor)
    assert (desc.device_id, desc.device_bus_id) == (-1, "")
    assert desc.loc == arm.mori.MemoryLocationType.CPU
    desc = pair.initiator.register_memory(tensor.data_ptr(), 64, -1, desc.loc)
    assert (desc.data, desc.size) == (tensor.data_ptr(), 64)


@case("1.5")
def status_starts_as_init(arm: Arm) -> None:
    """With an empty message, and neither succeeded nor failed."""
    status = arm.transfer_status()
    assert status.Code() == arm.mori.StatusCode.INIT
    assert status.Message() == ""
    assert (status.Init(), status.InProgress(), status.Succeeded(), status.Failed()) == (
        True,
        False,
        False,
        False,
    )


@case("1.5")
def first_error_sticks(arm: Arm) -> None:
    """Update is ignored after an error; success can still turn into one; SetCode always works."""
    code, status = arm.mori.StatusCode, arm.transfer_status()
    status.Update(code.SUCCESS, "fine")
    status.Update(code.ERR_RDMA_OP, "first")
    status.Update(code.ERR_BAD_STATE, "second")
    status.Update(code.SUCCESS, "third")
    assert status.Failed()
    assert (status.Code(), status.Message()) == (code.ERR_RDMA_OP, "first")
    status.SetCode(code.SUCCESS)
    status.SetMessage("m")
    assert status.Succeeded()
    assert status.Message() == "m"


@case("0.8")
def waiting_for_init_returns_at_once(arm: Arm) -> None:
    """Wait and WaitFor block only while a transfer is in progress."""
    began = arm.seconds()
    status = arm.transfer_status()
    status.Wait()
    status.WaitFor(5_000)
    assert arm.seconds() - began < 1
    assert status.Init()


@case("1.5")
def wait_for_is_bounded(arm: Arm) -> None:
    """A positive time-out ends the wait, 0 only looks."""
    status = arm.transfer_status()
    status.SetCode(arm.mori.StatusCode.IN_PROGRESS)
    began = arm.seconds()
    status.WaitFor(0)
    assert arm.seconds() - began < 0.05
    status.WaitFor(100)
    assert 0.09 < arm.seconds() - began < 1
    assert status.InProgress()


@case("1.5")
def wait_ends_when_the_status_changes(arm: Arm) -> None:
    """A thread that waits is woken by whoever ends the transfer."""
    code, status = arm.mori.StatusCode, arm.transfer_status()
    status.SetCode(code.IN_PROGRESS)

    def finish() -> None:
        arm.sleep(0.05)
        status.Update(code.SUCCESS, "success")

    began = arm.seconds()
    join = arm.thread(finish)
    status.WaitFor(10_000)
    assert status.Succeeded()
    assert arm.seconds() - began < 5
    join()


def _statuses(arm: Arm, *names: str) -> list[Any]:
    statuses = []
    for name in names:
        status = arm.transfer_status()
        status.SetCode(getattr(arm.mori.StatusCode, name))
        statuses.append(status)
    return statuses


@case("1.6")
def wait_all_without_waiting(arm: Arm) -> None:
    """An empty list succeeds; with time-out 0 an error goes before IN_PROGRESS, INIT is INIT."""
    code, engine = arm.mori.StatusCode, arm.engine("e")
    assert engine.wait_all([]) == code.SUCCESS
    assert engine.wait_all([], timeout_ms=5) == code.SUCCESS
    mixed = _statuses(arm, "SUCCESS", "IN_PROGRESS", "ERR_RDMA_OP")
    assert engine.wait_all(mixed, 0) == code.ERR_RDMA_OP
    assert engine.wait_all(_statuses(arm, "SUCCESS", "INIT"), 0) == code.INIT
    assert engine.wait_all(_statuses(arm, "SUCCESS", "SUCCESS"), 0) == code.SUCCESS


@case("0.8")
def wait_all_walks_the_list_under_one_deadline(arm: Arm) -> None:
    """A pending status hides those behind it; an error does not end the wait early."""
    code, engine = arm.mori.StatusCode, arm.engine("e")
    began = arm.seconds()
    assert engine.wait_all(_statuses(arm, "IN_PROGRESS", "ERR_RDMA_OP"), 100) == code.IN_PROGRESS
    assert 0.09 < arm.seconds() - began < 1
    began = arm.seconds()
    assert engine.wait_all(_statuses(arm, "ERR_RDMA_OP", "IN_PROGRESS"), 100) == code.ERR_RDMA_OP
    assert 0.09 < arm.seconds() - began < 1


@case("1.6")
def wait_all_without_limit_returns_the_first_failure_of_the_list(arm: Arm) -> None:
    """Every status is waited for, and list order decides."""
    code, engine = arm.mori.StatusCode, arm.engine("e")
    for is_pending_first in (True, False):
        pending, failed = _statuses(arm, "IN_PROGRESS", "ERR_RDMA_OP")

        def finish(pending: Any = pending) -> None:
            arm.sleep(0.05)
            pending.Update(code.ERR_BAD_STATE, "")

        join = arm.thread(finish)
        given = [pending, failed] if is_pending_first else [failed, pending]
        assert engine.wait_all(given, -1) == given[0].Code()
        assert pending.Code() == code.ERR_BAD_STATE
        join()
