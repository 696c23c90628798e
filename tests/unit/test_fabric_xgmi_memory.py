from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec import structs
from xgmi_world import SIZE, World

from sim.errors import UnsupportedByFacade
from sim.fabric import CX7, MI300X_XGMI, Fabric
from sim.fabric.mori_io import make
from sim.kernel import Kernel, Node, Process, ProcessState, Seed
from sim.units import MS


@pytest.fixture
def environ() -> dict[str, str]:
    return {}


@pytest.fixture
def kernel():
    with Kernel(Seed(1)).running() as kernel:
        yield kernel


@pytest.fixture
def world(kernel: Kernel, environ: dict[str, str]):
    return World(kernel, environ)


def test_nothing_moves_for_items_of_no_bytes(world: World) -> None:
    """A batch of them succeeds at once."""

    def body(engine: Any, here: Any, there: Any) -> bool:
        session = engine.create_session(here, there)
        return session.batch_write([0, 5], [0, 5], [0, 0], 0).Succeeded()

    assert world.run(body)
    assert world.landed == []


def test_a_copy_past_the_end_of_the_allocation_ends_the_run(world: World) -> None:
    """What a GPU does then is no library's behaviour."""

    def body(engine: Any, here: Any, there: Any) -> None:
        engine.create_session(here, there).write(0, SIZE - 10, 11, 0)

    with pytest.raises(UnsupportedByFacade, match=r"past the end of memory of p, 1048576 bytes"):
        world.run(body)


def test_lists_of_different_length_end_the_process(world: World) -> None:
    """The library asserts where RDMA returns an error."""

    def body(engine: Any, here: Any, there: Any) -> None:
        engine.create_session(here, there).batch_write([0, 1], [0], [1], 0)

    assert world.run(body) is None
    assert world.processes["d"].state is ProcessState.DEAD


def test_copies_stop_with_the_process_that_started_them(world: World) -> None:
    """Its streams are its own."""

    def body(engine: Any, here: Any, there: Any) -> None:
        engine.create_session(here, there).write(0, 0, SIZE, 0)
        world.kernel.crash(world.processes["d"])

    world.run(body)
    assert world.landed == []


def test_memory_of_a_dead_process_can_still_be_written(world: World) -> None:
    """What was mapped stays mapped: the copy succeeds, and nobody has the bytes."""

    def body(engine: Any, here: Any, there: Any) -> tuple[bool, bool]:
        session = engine.create_session(here, there)
        world.kernel.crash(world.processes["p"])
        world.tensors["d"].fill_(5)
        status = session.write(0, 0, 64, 0)
        status.Wait()
        return status.Succeeded(), session.alive()

    assert world.run(body) == (True, True)
    assert world.tensors["p"][:64].eq(5).all()
    assert world.landed == []


def test_a_restarted_peer_gets_what_was_mapped_of_its_predecessor(world: World) -> None:
    """Mappings are kept by key and id, so its new memory is never reached, without any error."""
    results = []

    def body(engine: Any, here: Any, there: Any) -> None:
        engine.create_session(here, there)
        old = world.tensors["p"]
        world.kernel.crash(world.processes["p"])
        restarted = Process(world.node, "p", incarnation=1)
        world.kernel.spawn(restarted, world.start, "p", name="p", guest=False)
        world.kernel.sleep(MS)
        world.tensors["d"].fill_(5)
        session = engine.create_session(here, world.peer(engine))
        status = session.write(0, 0, 64, 0)
        status.Wait()
        new = world.tensors["p"]
        results.extend([status.Succeeded(), bool(old[:64].eq(5).all()), bool(new.any())])

    world.run(body)
    assert results == [True, True, False]


def test_a_dead_peers_memory_cannot_be_mapped_anew(world: World) -> None:
    """No session, and a failed status without one."""

    def body(engine: Any, here: Any, there: Any) -> tuple[Any, str]:
        world.kernel.crash(world.processes["p"])
        session = engine.create_session(here, there)
        return session, engine.write(here, 0, there, 0, 8, 0).Message()

    assert world.run(body) == (None, "XGMI: Failed to create session")


def test_memory_registered_before_the_backend_is_not_exported(world: World) -> None:
    """Its descriptor carries no handle, so peers cannot use it; the owner can."""

    def body(_engine: Any, here: Any, there: Any) -> list[Any]:
        late = world.mori.IOEngine("late", world.mori.IOEngineConfig("10.0.0.1", 6000))
        buffer = world.tensors["late"] = torch.zeros(64, dtype=torch.uint8)
        memory = world.register(late, buffer)
        assert memory.ipc_handle == bytes(64)
        late.create_backend(world.mori.BackendType.XGMI)
        _engine.register_remote_engine(late.get_engine_desc())
        own = late.create_session(memory, memory)
        own.write(0, 32, 8, 0).Wait()
        return [_engine.create_session(here, memory), own is not None]

    assert world.run(body) == [None, True]


def test_memory_without_a_handle_goes_over_rdma(world: World) -> None:
    """Where there is RDMA: a handle is part of what XGMI can carry."""

    def body(engine: Any, _here: Any, _there: Any) -> str:
        kind = world.mori.BackendType.RDMA
        late = world.mori.IOEngine("late", world.mori.IOEngineConfig("10.0.0.1", 6000))
        late.create_backend(kind)
        buffer = world.tensors["late"] = torch.zeros(64, dtype=torch.uint8)
        engine.create_backend(kind)
        engine.register_remote_engine(late.get_engine_desc())
        here = world.register(engine, world.tensors["d"])
        status = engine.create_session(here, world.register(late, buffer)).write(0, 0, 8, 0)
        status.Wait()
        return status.Message()

    assert world.run(body) == "success"


def test_deregistering_disturbs_no_session(world: World) -> None:
    """Addresses stay what they are, unlike keys of an RDMA NIC."""

    def body(engine: Any, here: Any, there: Any) -> bool:
        session = engine.create_session(here, there)
        engine.deregister_memory(here)
        status = session.write(0, 0, 64, 0)
        status.Wait()
        return status.Succeeded()

    assert world.run(body)


@pytest.mark.parametrize("use", ["write", "alive"])
def test_a_session_after_remove_backend_ends_the_process(world: World, use: str) -> None:
    """The library leaves it with dangling pointers, whatever is asked of it."""

    def body(engine: Any, here: Any, there: Any) -> None:
        session = engine.create_session(here, there)
        assert session.alive()
        engine.remove_backend(world.mori.BackendType.XGMI)
        assert engine.create_session(here, there) is None
        getattr(session, use)(*((0, 0, 8, 0) if use == "write" else ()))

    assert world.run(body) is None
    process = world.processes["d"]
    assert process.state is ProcessState.DEAD
    assert process.exit_reason is not None
    assert process.exit_reason.startswith("a session of mori.io was used after remove_backend, at ")
    assert "test_fabric_xgmi_memory" in process.exit_reason


@pytest.mark.parametrize("environ", [{"MORI_NODE_ID": "everywhere"}])
def test_a_wrong_node_identity_fails_when_memory_is_mapped(world: World) -> None:
    """Machines that claim to be one get no session, rather than another backend's."""

    def body(engine: Any, here: Any, there: Any) -> Any:
        far = Process(Node("far", "10.0.0.9"), "far")
        world.kernel.spawn(far, world.start, "p", name="p", guest=False)
        world.kernel.sleep(MS)
        return engine.create_session(here, world.peer(engine))

    assert world.run(body) is None


def test_gpus_of_a_machine_have_different_addresses(world: World) -> None:
    """By process and device, in the order of first use; other machines count anew."""
    gpus = world.fabric.gpus
    p, d = world.processes["p"], world.processes["d"]
    far = Process(Node("far", "10.0.0.9"), "p")
    ids = [gpus.bus_id(*gpu) for gpu in ((p, 0), (d, 0), (p, 1), (p, 0), (far, 0))]
    assert ids == ["0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:05:00.0", "0000:05:00.0"]


def test_gpus_that_do_not_reach_each_other_are_no_way_out(kernel: Kernel) -> None:
    """Then a host without an RDMA device has no backend at all, whatever is allowed."""
    fabric = Fabric(
        kernel, structs.replace(CX7, nics_per_node=0), replace(MI300X_XGMI, peer_access=False)
    )
    mori = make(kernel, fabric, {"MORI_DISABLE_AUTO_XGMI": "0"})

    def body() -> None:
        engine = mori.IOEngine("e", mori.IOEngineConfig("10.0.0.1", 0))
        with pytest.raises(RuntimeError, match="no active RDMA device"):
            engine.create_backend(mori.BackendType.RDMA)
        engine.create_backend(mori.BackendType.XGMI)
        buffer = torch.zeros(64, dtype=torch.uint8)
        gpu = mori.MemoryLocationType.GPU
        memory = engine.register_memory(buffer.data_ptr(), 64, 0, gpu)
        assert engine.create_session(memory, memory) is None

    kernel.spawn(Process(Node("n", "10.0.0.1"), "w"), body, name="t", guest=False)
    kernel.run()
