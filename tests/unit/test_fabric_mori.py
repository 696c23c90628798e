from __future__ import annotations

from typing import Any

import pytest
import torch

from sim.errors import UnsupportedByFacade, UsageError
from sim.fabric import CompletionItem, ControlItem, Fabric, PostItem, RegistrationItem, SessionItem
from sim.fabric.mori_io import make
from sim.kernel import Kernel, Node, Process, ProcessState, Seed
from sim.units import SECOND
from sim.verdict import Delay, Drop, Fail, Verdict


class Always:
    """One answer to every question of a kind."""

    def __init__(self, kind: type, verdict: Verdict) -> None:
        self.kind, self.verdict = kind, verdict

    def judge(self, item: Any) -> Verdict | None:
        return self.verdict if isinstance(item, self.kind) else None


class World:
    """Engine ``d`` on one machine and ``p`` on another; ``run`` is the thread of d's process."""

    def __init__(self, kernel: Kernel, environ: dict[str, str]) -> None:
        self.kernel = kernel
        self.fabric = Fabric(kernel)
        self.mori = make(kernel, self.fabric, environ)
        self.processes = {
            name: Process(Node(name, f"10.0.0.{n}"), "core") for n, name in enumerate("pd", 1)
        }
        self.packed: list[bytes] = []

    def start(self, name: str) -> tuple[Any, Any]:
        ip = self.processes[name].node.ip
        engine = self.mori.IOEngine(name, self.mori.IOEngineConfig(ip, 5000))
        engine.create_backend(self.mori.BackendType.RDMA)
        memory = engine.register_torch_tensor(torch.zeros(4096, dtype=torch.uint8))
        if name == "p":
            self.packed = [engine.get_engine_desc().pack(), memory.pack()]
        return engine, memory

    def run(self, body: Any) -> Any:
        """Start p, then run ``body(engine, local_desc, remote_desc)`` in d's process."""
        results: list[Any] = []

        def main() -> None:
            self.kernel.sleep(1)
            engine, local = self.start("d")
            engine.register_remote_engine(self.mori.EngineDesc.unpack(self.packed[0]))
            remote = self.mori.MemoryDesc.unpack(self.packed[1])
            results.append(body(engine, local, remote))

        self.kernel.spawn(self.processes["p"], self.start, "p", name="p", guest=False)
        self.kernel.spawn(self.processes["d"], main, name="d", guest=False)
        self.kernel.run()
        return results[0] if results else None


@pytest.fixture
def environ() -> dict[str, str]:
    return {}


@pytest.fixture
def world(environ: dict[str, str]):
    with Kernel(Seed(1)).running() as kernel:
        yield World(kernel, environ)


def test_a_session_can_be_refused_without_an_error(world: World) -> None:
    """create_session returns None when a rule drops it."""
    world.fabric.verdicts.add(Always(SessionItem, Drop()))
    assert world.run(lambda engine, here, there: engine.create_session(here, there)) is None


def test_registration_can_fail(world: World) -> None:
    """As RuntimeError with the rule's text."""

    def body(engine: Any, _here: Any, _there: Any) -> None:
        world.fabric.verdicts.add(Always(RegistrationItem, Fail("", "ibv_reg_mr failed: ENOMEM")))
        with pytest.raises(RuntimeError, match="ibv_reg_mr failed"):
            engine.register_torch_tensor(torch.zeros(8))

    world.run(body)


def test_a_slow_control_plane_is_waited_for(world: World) -> None:
    """Two exchanges, each a second late."""
    world.fabric.verdicts.add(Always(ControlItem, Delay(SECOND)))

    def body(engine: Any, here: Any, there: Any) -> int:
        began = world.kernel.now_ns
        assert engine.create_session(here, there) is not None
        return world.kernel.now_ns - began

    assert world.run(body) == 2 * SECOND + 2 * world.fabric.profile.control_exchange_ns


def test_a_paused_peer_answers_when_it_resumes(world: World) -> None:
    """Before the time-out that is only slow; the listening socket accepts all the while."""

    def body(engine: Any, here: Any, there: Any) -> int:
        world.kernel.pause(world.processes["p"])
        world.kernel.call_later(3 * SECOND, world.kernel.resume, world.processes["p"])
        began = world.kernel.now_ns
        assert engine.create_session(here, there) is not None
        return world.kernel.now_ns - began

    assert 3 * SECOND < world.run(body) < 4 * SECOND


def test_a_peer_that_crashes_while_asked_resets_the_connection(world: World) -> None:
    """The initiator need not wait for its time-out."""

    def body(engine: Any, here: Any, there: Any) -> int:
        world.kernel.pause(world.processes["p"])
        world.kernel.call_later(SECOND, world.kernel.crash, world.processes["p"])
        began = world.kernel.now_ns
        with pytest.raises(RuntimeError, match="errno=104"):
            engine.create_session(here, there)
        return world.kernel.now_ns - began

    assert world.run(body) < 2 * SECOND


def test_send_queue_full_by_rule(world: World) -> None:
    """The library's text after the library's wait, whatever room there is."""
    world.fabric.verdicts.add(Always(PostItem, Fail("SQ_FULL", "")))

    def body(engine: Any, here: Any, there: Any) -> tuple[str, int]:
        session, began = engine.create_session(here, there), world.kernel.now_ns
        message = session.write(0, 0, 8, 0).Message()
        return message, world.kernel.now_ns - began

    message, took = world.run(body)
    assert message.startswith("SQ full (batch): ep=0 depth=8192 requested=1 max=8192 Hint: ")
    assert 5 * SECOND <= took < 6 * SECOND


@pytest.mark.parametrize(
    "environ", [{"MORI_IO_SQ_BACKOFF_TIMEOUT_US": "1000000", "MORI_IO_QP_MAX_SEND_WR": "2"}]
)
def test_environment_variables_change_the_limits(world: World) -> None:
    """A queue of 2 and a wait of a second, from the environment given."""
    world.fabric.verdicts.add(Always(PostItem, Fail("SQ_FULL", "")))

    def body(engine: Any, here: Any, there: Any) -> tuple[str, int]:
        session, began = engine.create_session(here, there), world.kernel.now_ns
        message = session.write(0, 0, 8, 0).Message()
        return message, world.kernel.now_ns - began

    message, took = world.run(body)
    assert "max=2 Hint: raise MORI_IO_SQ_BACKOFF_TIMEOUT_US (now 1000000)" in message
    assert SECOND <= took < 2 * SECOND


def test_a_bad_environment_variable_is_a_usage_error(world: World) -> None:
    """It names the variable, the value and what was expected."""
    with pytest.raises(UsageError, match=r"MORI_IO_CP_TIMEOUT_MS='soon'.*5000"):
        make(world.kernel, world.fabric, {"MORI_IO_CP_TIMEOUT_MS": "soon"})


def test_an_occupied_port_ends_the_process(world: World) -> None:
    """As a failing bind does in the library."""

    def body(engine: Any, _here: Any, _there: Any) -> None:
        second = world.mori.IOEngine("second", world.mori.IOEngineConfig("10.0.0.2", 5000))
        second.create_backend(world.mori.BackendType.RDMA)

    assert world.run(body) is None
    assert world.processes["d"].state is ProcessState.DEAD
    (record,) = [r for r in world.kernel.log.records if r.kind == "process-exit"]
    assert record.fields["reason"] == "bind 10.0.0.2:5000: Address already in use"


def test_what_is_not_simulated_says_so(world: World) -> None:
    """With the name and the place of use; the run ends rather than going on without."""
    with pytest.raises(UnsupportedByFacade, match=r"mori\.io\.fabric_alloc.*test_fabric_mori:"):
        world.mori.fabric_alloc(8, 0)

    def body(engine: Any, _here: Any, _there: Any) -> None:
        engine.create_backend(world.mori.BackendType.FABRIC, world.mori.FabricBackendConfig())

    with pytest.raises(UnsupportedByFacade, match=r"BackendType\.FABRIC backend is not simulated"):
        world.run(body)


def test_each_engine_of_a_machine_has_its_own_nic(world: World) -> None:
    """In turn, and a restarted engine gets its old one."""
    process = world.processes["p"]
    opened = [world.fabric.open_device(process, key, print) for key in ("a", "b", "a", "c")]
    assert [device.nic.index for device in opened] == [0, 1, 0, 2]


def test_sessions_share_what_the_control_plane_told(world: World) -> None:
    """One exchange for the queue pair and one for the memory, however many sessions."""

    def body(engine: Any, here: Any, there: Any) -> None:
        for _ in range(3):
            engine.create_session(here, there)

    world.run(body)
    asked = [r.fields["request"] for r in world.kernel.log.records if "exchange" in r.kind]
    assert asked == ["register-endpoint", "ask-memory-region"]


def test_an_event_while_a_call_waits_for_room_rejects_it(world: World) -> None:
    """The room that the flushed transfers give back is no use any more."""
    world.fabric.verdicts.add(Always(CompletionItem, Drop()))

    def body(engine: Any, here: Any, there: Any) -> str:
        session = engine.create_session(here, there)
        session.batch_write([0, 128], [0, 128], [8, 8], 0)
        device = engine._backend.device
        (queue_pair,) = device.queue_pairs
        queue_pair.send_queue.limit = 3
        kernel = world.kernel
        kernel.call_later(SECOND, world.fabric.raise_event, device, "QP_FATAL", queue_pair)
        kernel.call_later(2 * SECOND, queue_pair.send_queue.give_back, 2)
        return session.batch_write([0, 128], [0, 128], [8, 8], 1).Message()

    text = "endpoint was failed by a fatal verbs async event; submission rejected"
    assert world.run(body) == text


def test_converting_lists_holds_the_gil(world: World) -> None:
    """While thousands of numbers are copied no other thread of the process runs."""
    ticks: list[int] = []

    def tick() -> None:
        for _ in range(100):
            ticks.append(world.kernel.now_ns)
            world.kernel.sleep(10_000)

    def body(engine: Any, here: Any, there: Any) -> int:
        session = engine.create_session(here, there)
        world.kernel.spawn(world.processes["d"], tick, name="ticker")
        began = world.kernel.now_ns
        session.batch_write([0] * 8192, [0] * 8192, [1] * 8192, 0)
        return began

    began = world.run(body)
    assert [t for t in ticks if began < t < began + 819_200] == []
    assert len(ticks) == 100


def test_repeated_port_failures_are_folded(world: World) -> None:
    """Until the port has been up again."""

    def body(engine: Any, _here: Any, _there: Any) -> list[bool]:
        popped = []
        for name in ("PORT_ERR", "PORT_ERR", "PORT_ACTIVE", "PORT_ERR"):
            world.fabric.raise_event(engine._backend.device, name)
            world.kernel.sleep(10)
            popped.append(engine.pop_peer_failure() is not None)
        return popped

    assert world.run(body) == [True, False, False, True]
