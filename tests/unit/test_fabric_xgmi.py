from __future__ import annotations

from typing import Any

import pytest
import torch
from xgmi_world import SIZE, Once, World

from sim.fabric import MI300X_XGMI, CopyItem, CopyPostItem
from sim.kernel import Kernel, Seed
from sim.units import MS, SECOND
from sim.verdict import Corrupt, Delay, Drop, Fail


@pytest.fixture
def environ() -> dict[str, str]:
    return {}


@pytest.fixture
def world(environ: dict[str, str]):
    with Kernel(Seed(1)).running() as kernel:
        yield World(kernel, environ)


def test_a_bounded_wait_notices_the_end_at_its_deadline(world: World) -> None:
    """It looks at once and then only at the end of its time, so a short copy takes all of it."""

    def body(engine: Any, here: Any, there: Any) -> list[tuple[int, str]]:
        session, took = engine.create_session(here, there), []
        for wait in (
            lambda status: status.WaitFor(100),
            lambda status: engine.wait_all([status], 100),
            lambda status: status.Wait(),
        ):
            status, began = session.write(0, 0, 64, 0), world.kernel.now_ns
            wait(status)
            took.append(world.kernel.now_ns - began)
            assert str(status.Code()) == "StatusCode.SUCCESS"
        return took

    first, second, third = world.run(body)
    assert (first, second) == (100 * MS, 100 * MS)
    assert third < MS


def test_another_threads_look_ends_a_bounded_wait(world: World) -> None:
    """Whoever notices tells those who wait."""

    def body(engine: Any, here: Any, there: Any) -> int:
        status = engine.create_session(here, there).write(0, 0, 64, 0)
        world.kernel.spawn(
            world.processes["d"],
            lambda: (world.kernel.sleep(10 * MS), status.Succeeded()),
            name="poller",
        )
        began = world.kernel.now_ns
        status.WaitFor(100)
        return world.kernel.now_ns - began

    assert world.run(body) == 10 * MS


def test_a_look_during_a_wait_waits_with_the_gil_held(world: World) -> None:
    """The one who waits has the event's lock; the whole process stands still until the end."""
    ticks: list[int] = []

    def tick() -> None:
        for _ in range(400):
            ticks.append(world.kernel.now_ns)
            world.kernel.sleep(1_000)

    def body(engine: Any, here: Any, there: Any) -> tuple[int, int]:
        session = engine.create_session(here, there)
        world.fabric.verdicts.add(Once(CopyItem, Delay(200_000)))
        status, process = session.write(0, 0, 64, 0), world.processes["d"]
        world.kernel.spawn(process, status.Wait, name="waiter")
        world.kernel.sleep(10_000)
        world.kernel.spawn(process, tick, name="ticker")
        began = world.kernel.now_ns
        assert status.Code() == world.mori.StatusCode.SUCCESS
        return began, world.kernel.now_ns

    began, ended = world.run(body)
    assert ended - began > 150_000
    assert [t for t in ticks if began < t < ended] == []


def test_the_time_of_a_transfer_follows_the_profile(world: World) -> None:
    """Host cost for the call and each copy, then the stream's, then the bytes over the link."""

    def body(engine: Any, here: Any, there: Any) -> tuple[int, int]:
        session, began = engine.create_session(here, there), world.kernel.now_ns
        offsets = [i * 8192 for i in range(10)]
        status = session.batch_write(offsets, offsets, [4096] * 10, 0)
        posted = world.kernel.now_ns
        status.Wait()
        return posted - began, world.kernel.now_ns - posted

    host_ns, device_ns = world.run(body)
    profile, items_ns = MI300X_XGMI, 10 * world.fabric.profile.item_ns
    assert host_ns == items_ns + profile.call_ns + 10 * profile.launch_ns
    assert device_ns == pytest.approx(10 * profile.copy_ns + 40_960 / 48.0, abs=2)


@pytest.mark.parametrize("environ", [{"MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD": "8"}])
def test_many_small_copies_can_be_one_launch(world: World) -> None:
    """With more segments than the threshold, and not with fewer."""

    def body(engine: Any, here: Any, there: Any) -> list[int]:
        session, took = engine.create_session(here, there), []
        for count in (8, 9):
            offsets = [i * 8192 for i in range(count)]
            began = world.kernel.now_ns
            session.batch_write(offsets, offsets, [64] * count, 0).Wait()
            took.append(world.kernel.now_ns - began)
        return took

    eight, nine = world.run(body)
    assert nine < eight / 2


def test_calls_share_the_link_and_not_the_stream(world: World) -> None:
    """Two at once take about as long as twice the bytes, and both end together."""

    def body(engine: Any, here: Any, there: Any) -> list[int]:
        session = engine.create_session(here, there)
        statuses = [session.write(0, 0, SIZE, uid) for uid in range(2)]
        for status in statuses:
            status.Wait()
        return [landed_ns for landed_ns, _landing in world.landed]

    first, second = world.run(body)
    assert second - first < 10_000


def test_a_single_stream_keeps_the_order(world: World) -> None:
    """One stream: the second call's bytes come after the first's, whole."""

    def body(_engine: Any, _here: Any, there: Any) -> list[int]:
        engine = world.mori.IOEngine("one", world.mori.IOEngineConfig("10.0.0.1", 6000))
        engine.create_backend(
            world.mori.BackendType.XGMI, world.mori.XgmiBackendConfig(num_streams=1)
        )
        world.peer(engine)
        session = engine.create_session(world.register(engine, world.tensors["d"]), there)
        for status in [session.write(0, 0, SIZE, uid) for uid in range(2)]:
            status.Wait()
        return [landed_ns for landed_ns, _landing in world.landed]

    first, second = world.run(body)
    assert second - first >= SIZE / 48.0


def test_each_destination_has_streams_of_its_own(world: World) -> None:
    """With one stream for each GPU, copies to two GPUs do not wait for each other."""

    def body(_engine: Any, _here: Any, _there: Any) -> list[int]:
        engine = world.mori.IOEngine("two", world.mori.IOEngineConfig("10.0.0.1", 6000))
        engine.create_backend(world.mori.BackendType.XGMI, world.mori.XgmiBackendConfig(1))
        world.tensors["e"] = torch.zeros(SIZE, dtype=torch.uint8)
        first = world.register(engine, world.tensors["d"])
        second = world.register(engine, world.tensors["e"], device=1)
        sessions = [engine.create_session(*pair) for pair in ((first, second), (second, first))]
        for status in [session.write(0, 0, SIZE, 0) for session in sessions]:
            status.Wait()
        return [landed_ns for landed_ns, _landing in world.landed]

    first, second = world.run(body)
    assert second - first < 10_000


def test_observers_see_where_the_bytes_go(world: World) -> None:
    """As with RDMA: engines, operation, regions and offsets; there is no queue pair."""

    def body(engine: Any, here: Any, there: Any) -> None:
        session = engine.create_session(here, there)
        session.write(10, 20, 30, 1).Wait()
        session.read(10, 20, 30, 2).Wait()

    world.run(body)
    seen = [
        (
            *(landing.initiator, landing.target, landing.operation.value),
            *(landing.source.owner, landing.source_offsets.tolist()),
            *(landing.destination.owner, landing.destination_offsets.tolist()),
            *(landing.transfer_uid, landing.queue_pair),
        )
        for _landed_ns, landing in world.landed
    ]
    assert seen == [
        ("d", "p", "write", "d", [10], "p", [20], 1, 0),
        ("d", "p", "read", "p", [20], "d", [10], 2, 0),
    ]


def test_a_hanging_gpu_blocks_its_stream_only(world: World) -> None:
    """The status stays in progress for ever; the other streams go on."""

    def body(engine: Any, here: Any, there: Any) -> list[bool]:
        session = engine.create_session(here, there)
        world.fabric.verdicts.add(Once(CopyItem, Drop()))
        statuses = [session.write(0, 0, 64, uid) for uid in range(65)]
        world.kernel.sleep(SECOND)
        return [status.InProgress() for status in statuses]

    assert world.run(body) == [True, *[False] * 63, True]


def test_rules_for_copies(world: World) -> None:
    """Late, corrupt, failed with the driver's words, or late in the call."""

    def body(engine: Any, here: Any, there: Any) -> None:
        session, kernel = engine.create_session(here, there), world.kernel
        world.fabric.verdicts.add(Once(CopyItem, Delay(SECOND)))
        began = kernel.now_ns
        session.write(0, 0, 64, 0).Wait()
        assert kernel.now_ns - began > SECOND
        world.fabric.verdicts.add(Once(CopyItem, Corrupt(lambda payload: payload.fill(9))))
        session.write(0, 0, 64, 1).Wait()
        assert world.tensors["p"][:64].eq(9).all()
        world.fabric.verdicts.add(Once(CopyItem, Fail("", "an illegal access")))
        status = session.write(64, 64, 64, 2)
        world.kernel.sleep(MS)
        assert status.Failed()
        assert status.Message() == "XGMI: hipEventQuery failed: an illegal access"
        world.fabric.verdicts.add(Once(CopyItem, Fail("", "an illegal access")))
        status = session.write(64, 64, 64, 3)
        status.Wait()
        assert status.Message() == "XGMI: hipEventSynchronize failed: an illegal access"
        world.fabric.verdicts.add(Once(CopyPostItem, Delay(SECOND)))
        began = kernel.now_ns
        assert session.write(0, 0, 64, 4).InProgress()
        assert kernel.now_ns - began > SECOND
        world.fabric.verdicts.add(Once(CopyPostItem, Fail("", "out of memory")))
        status = session.write(0, 0, 64, 5)
        assert status.Message() == "XGMI: hipMemcpyPeerAsync failed: out of memory"

    world.run(body)
