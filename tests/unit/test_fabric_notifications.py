from __future__ import annotations

from typing import Any

import pytest
import torch

from sim.fabric import Fabric, PostItem
from sim.fabric.mori.notifications import Inbound
from sim.fabric.mori_io import make
from sim.fabric.work import Operation
from sim.kernel import Kernel, Node, Process, Seed
from sim.units import MS, SECOND
from sim.verdict import Fail


class World:
    """Engines ``d`` and ``p`` in one task; ``p`` may be configured otherwise."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.fabric = Fabric(kernel)
        self.engines: dict[str, Any] = {}
        self.processes = {
            name: Process(Node(name, f"10.0.0.{n}"), "core") for n, name in enumerate("pd", 1)
        }

    def session(self, environ: dict[str, str] | None = None, **target: Any) -> Any:
        """Of d with p; ``target`` is p's configuration, ``environ`` is d's."""
        descs = []
        for name, values in (("p", target), ("d", {})):
            mori = make(self.kernel, self.fabric, environ if environ and name == "d" else {})
            config = mori.RdmaBackendConfig()
            for attribute, value in values.items():
                setattr(config, attribute, value)
            engine = self.engines[name] = self._engine(mori, name)
            engine.create_backend(mori.BackendType.RDMA, config)
            descs.append(engine.register_torch_tensor(torch.zeros(4096, dtype=torch.uint8)))
        p, d = self.engines["p"], self.engines["d"]
        d.register_remote_engine(p.get_engine_desc())
        p.register_remote_engine(d.get_engine_desc())
        return d.create_session(descs[1], descs[0])

    def _engine(self, mori: Any, name: str) -> Any:
        made, done = [], self.kernel.event()
        config = mori.IOEngineConfig(self.processes[name].node.ip, 0)
        self.kernel.spawn(
            self.processes[name],
            lambda: (made.append(mori.IOEngine(name, config)), done.succeed()),
            name="main",
        )
        self.kernel.wait(done)
        return made[0]

    def popped(self, uid: int) -> Any:
        self.kernel.sleep(MS)
        return self.engines["p"].pop_inbound_transfer_status("d", uid)

    def run(self, body: Any, until_ns: int | None = None) -> None:
        finished = []
        task = Process(Node("n", "10.0.0.3"), "test")
        self.kernel.spawn(task, lambda: (body(), finished.append(1)), name="test", guest=False)
        self.kernel.run(until_ns=until_ns)
        assert finished, self.kernel.describe_waiters()


@pytest.fixture
def world():
    with Kernel(Seed(1)).running() as kernel:
        yield World(kernel)


def test_a_peer_without_receives_blocks_what_comes_later(world: World) -> None:
    """The first transfer ends well; its notification is never taken, and the next one hangs."""

    def body() -> None:
        session = world.session(enable_notification=False)
        first = session.write(0, 0, 64, 0)
        first.Wait()
        assert first.Succeeded()
        second = session.write(0, 0, 64, 1)
        second.WaitFor(60_000)
        assert second.InProgress()
        assert session.alive()
        assert world.popped(0) is None

    world.run(body, until_ns=100 * SECOND)


def test_limited_retries_end_the_hang_with_the_queue_pair(world: World) -> None:
    """MORI_IO_QP_RNR_RETRY below 7: alive() stays True and all later transfers are flushed."""

    def body() -> None:
        session = world.session({"MORI_IO_QP_RNR_RETRY": "2"}, enable_notification=False)
        assert str(session.write(0, 0, 64, 0).WaitFor(1_000)) == "StatusCode.SUCCESS"
        later = session.write(0, 0, 64, 1)
        later.Wait()
        assert later.Message() == "Work Request Flushed Error"
        assert session.alive()
        queue_pair = world.engines["d"]._backend.device.queue_pairs[0]
        assert queue_pair.send_queue.depth == 0

    world.run(body)


def test_a_paused_target_runs_out_of_receives(world: World) -> None:
    """Its completion thread posts them again; until then the sender stalls, without an error."""

    def body() -> None:
        session = world.session(notif_per_qp=2)
        world.kernel.pause(world.processes["p"])
        done = [session.write(0, 0, 64, uid) for uid in range(4)]
        world.kernel.sleep(10 * SECOND)
        assert [status.Succeeded() for status in done] == [True, True, True, False]
        world.kernel.resume(world.processes["p"])
        done[3].WaitFor(100)
        assert done[3].Succeeded()
        assert world.popped(3).Succeeded()

    world.run(body)


def test_a_reused_number_counts_below_zero(world: World) -> None:
    """Entries are never removed, so a second transfer of that number cannot be popped."""

    def body() -> None:
        session = world.session()
        for expected in (True, False, False):
            session.write(0, 0, 64, 5).Wait()
            assert (world.popped(5) is not None) is expected

    world.run(body)


def test_empty_batches_notify(world: World) -> None:
    """They succeed, so the target is told."""

    def body() -> None:
        assert world.session().batch_write([], [], [], 3).Succeeded()
        assert world.popped(3).Succeeded()

    world.run(body)


def test_refused_calls_do_not_notify(world: World) -> None:
    """Whatever refused them."""

    def body() -> None:
        session = world.session()
        assert session.write(0, 4096, 1, 0).Failed()
        assert world.popped(0) is None

    world.run(body)


def test_a_notification_that_finds_no_room_leaves_the_others_unsent(world: World) -> None:
    """Room is taken on every queue pair first, and given back when one has none."""

    def body() -> None:
        session = world.session({"MORI_IO_QP_PER_TRANSFER": "2"})
        queue_pairs = world.engines["d"]._backend.device.queue_pairs
        number = queue_pairs[1].number
        world.fabric.verdicts.add(FullFor(number))
        status = session.write(0, 0, 64, 0)
        assert status.Message().startswith("SQ full (notify): ep=1 depth=8192 requested=1 ")
        world.kernel.sleep(SECOND)
        assert [queue_pair.send_queue.depth for queue_pair in queue_pairs] == [0, 0]
        kinds = [r.fields["operation"] for r in world.kernel.log.records if r.kind == "posted"]
        assert kinds == ["write"]

    world.run(body)


def test_a_refused_notification_gives_its_room_back(world: World) -> None:
    """Its own and that of those behind it; the one before it is sent."""

    def body() -> None:
        session = world.session({"MORI_IO_QP_PER_TRANSFER": "3"})
        queue_pairs = world.engines["d"]._backend.device.queue_pairs
        world.fabric.verdicts.add(FullFor(queue_pairs[1].number, "ENOMEM"))
        assert session.write(0, 0, 64, 0).Message().startswith("ibv_post_send (notify) failed")
        world.kernel.sleep(SECOND)
        assert [queue_pair.send_queue.depth for queue_pair in queue_pairs] == [0, 0, 0]
        kinds = [r.fields["operation"] for r in world.kernel.log.records if r.kind == "posted"]
        assert kinds == ["write", "send"]

    world.run(body)


class FullFor:
    """SENDs find the send queue of one queue pair full, or a provider that refuses them."""

    def __init__(self, queue_pair: int, code: str = "SQ_FULL") -> None:
        self.queue_pair, self.code = queue_pair, code

    def judge(self, item: Any) -> Fail | None:
        sends = isinstance(item, PostItem) and item.operation is Operation.SEND
        return Fail(self.code, "") if sends and item.queue_pair == self.queue_pair else None


def test_all_parts_of_a_notification_are_needed() -> None:
    """One for each queue pair; keys and numbers are kept apart."""
    inbound, message = Inbound(), b"\x07" + bytes(11) + b"\x02\0\0\0"
    inbound.arrived("d", message)
    assert not inbound.is_complete("d", 7)
    inbound.arrived("e", message)
    assert not inbound.is_complete("d", 7)
    inbound.arrived("d", message)
    assert inbound.is_complete("d", 7)
    assert not inbound.is_complete("d", 8)
