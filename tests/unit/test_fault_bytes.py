"""What the rarer faults do to memory, to statuses, and to what comes after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fabric_world import FabricWorld
from fault_world import inject

from sim.fabric import Fabric
from sim.fabric.mori_io import make
from sim.fabric.queue_pair import QueuePairState
from sim.kernel import Kernel, Node, Process, Seed
from sim.units import MS, SECOND

WR = 1024


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel(Seed(1)).running() as kernel:
        yield kernel


@pytest.fixture
def world(kernel: Kernel) -> FabricWorld:
    """Work requests of WR bytes; everything at p is 7, everything at d is 0."""
    world = FabricWorld(kernel, size=WR * 16)
    world.tensors["p"].fill_(7)
    return world


def landed(world: FabricWorld) -> list[int]:
    """The work requests whose bytes are wholly at d."""
    rows = world.tensors["d"].view(-1, WR)
    return [n for n, row in enumerate(rows) if bool((row == 7).all())]


def torn(world: FabricWorld) -> list[int]:
    """The work requests of which a part is at d."""
    rows = world.tensors["d"].view(-1, WR)
    return [n for n, row in enumerate(rows) if bool((row == 7).any()) and n not in landed(world)]


def test_landed_but_completion_lost(world: FabricWorld, kernel: Kernel) -> None:
    """The bytes are there, nobody hears of it, and the next transfer goes on as usual."""
    inject(world.fabric, "completion-lost")
    queue_pair = world.connect()
    world.post(queue_pair, [WR, WR])
    world.post(queue_pair, [WR], at=2 * WR)
    kernel.run()
    assert landed(world) == [0, 1, 2]
    assert world.statuses() == ["SUCCESS"]  # of the second
    assert queue_pair.state is QueuePairState.READY_TO_SEND


def test_a_silent_queue_pair_lands_everything_and_tells_nothing(
    world: FabricWorld, kernel: Kernel
) -> None:
    """Successes, and after an error also the flushes; another queue pair is not concerned."""
    scene, heal = inject(world.fabric, "silent-queue-pair")
    silent, other = world.connect(), world.connect()
    world.post(silent, [WR])
    kernel.run(until_ns=1 * MS)
    heal()  # what has fallen silent stays so
    world.post(silent, [WR], at=WR)
    world.post(other, [WR], at=2 * WR)
    kernel.run(until_ns=2 * MS)
    silent.enter_error()
    world.post(silent, [WR], at=3 * WR)
    kernel.run()
    assert landed(world) == [0, 1, 2]
    assert world.statuses() == ["SUCCESS"]
    assert scene.hits == ["CompletionItem"]


def test_a_queue_pair_in_error_flushes_what_is_outstanding_and_what_comes(
    world: FabricWorld, kernel: Kernel
) -> None:
    """The failing transfer keeps its status, the queued ones get the flush, and nothing of them
    lands; the queue pair never works again."""
    inject(world.fabric, "completion-error:code=REM_ACCESS")
    queue_pair = world.connect()
    for number in range(3):
        world.post(queue_pair, [WR], at=number * WR)
    kernel.run()
    world.post(queue_pair, [WR], at=3 * WR)
    kernel.run()
    assert world.statuses() == ["REM_ACCESS", "WR_FLUSH", "WR_FLUSH", "WR_FLUSH"]
    assert landed(world) == []
    assert queue_pair.state is QueuePairState.ERROR


def test_an_error_after_the_landing_leaves_the_bytes(world: FabricWorld, kernel: Kernel) -> None:
    """A Failed status does not mean that nothing moved."""
    inject(world.fabric, "completion-error:landed=true")
    world.post(world.connect(), [WR, WR])
    kernel.run()
    assert world.statuses() == ["RETRY_EXC"]
    assert landed(world) == [0, 1]


@pytest.mark.parametrize(
    ("which", "share", "expected"),
    [
        ("first", 0.5, [0, 1, 2, 3]),
        ("last", 0.5, [4, 5, 6, 7]),
        ("first", 0.0, []),
        ("last", 1.0, [1, 2, 3, 4, 5, 6, 7]),  # at least one is missing
        ("any", 0.5, None),
    ],
)
def test_a_part_of_a_transfer_lands(
    world: FabricWorld, kernel: Kernel, which: str, share: float, expected: list[int] | None
) -> None:
    """Whole work requests, a prefix, a suffix or any subset of them; then an error, no success."""
    inject(world.fabric, f"partial-landing:which={which},share={share}")
    world.post(world.connect(), [WR] * 8)
    kernel.run()
    found = landed(world)
    assert torn(world) == []
    assert len(found) == 4 if expected is None else found == expected
    assert "SUCCESS" not in world.statuses()
    assert world.statuses()[0] in ("RETRY_EXC", "WR_FLUSH")


def test_a_drawn_subset_need_not_be_a_prefix(world: FabricWorld, kernel: Kernel) -> None:
    """The subset is the seed's: this one has a hole before something that landed."""
    inject(world.fabric, "partial-landing:which=any,share=0.5")
    world.post(world.connect(), [WR] * 8)
    kernel.run()
    assert landed(world) != [0, 1, 2, 3]


def test_late_bytes_land_in_memory_that_has_changed_hands(
    world: FabricWorld, kernel: Kernel
) -> None:
    """Four seconds after the post, over what the new owner wrote, with the bytes of that time."""
    inject(world.fabric, "late-landing:by_s=4")
    world.post(world.connect(), [WR])
    kernel.run(until_ns=3 * SECOND)
    assert world.completions == []
    world.tensors["d"][:WR] = 5  # the new owner's
    world.tensors["p"].fill_(9)  # and at the source, too, others have moved in
    kernel.run()
    assert world.tensors["d"][:WR].unique().tolist() == [9]
    ((time_ns, completion),) = world.completions
    assert time_ns > 4 * SECOND
    assert completion.status.name == "SUCCESS"


def test_late_bytes_do_not_land_through_a_destroyed_queue_pair(
    world: FabricWorld, kernel: Kernel
) -> None:
    """Whoever gives an operation up for good destroys its queue pair."""
    inject(world.fabric, "late-landing:by_s=4")
    queue_pair = world.connect()
    world.post(queue_pair, [WR])
    kernel.run(until_ns=1 * SECOND)
    queue_pair.destroy()
    kernel.run()
    assert landed(world) == []


def test_completion_before_visibility(world: FabricWorld, kernel: Kernel) -> None:
    """At the success the memory is old; 20 ms later it is new."""
    inject(world.fabric, "early-completion:by_ms=20")
    world.post(world.connect(), [WR])
    kernel.run(until_ns=10 * MS)
    assert (world.statuses(), landed(world)) == (["SUCCESS"], [])
    kernel.run()
    assert landed(world) == [0]


def test_corrupt_bytes_differ_in_so_many_bits_and_succeed(
    world: FabricWorld, kernel: Kernel
) -> None:
    """The source is untouched."""
    inject(world.fabric, "corrupt-bytes:bits=1")
    world.post(world.connect(), [WR, WR])
    kernel.run()
    changed = world.tensors["d"][: 2 * WR] ^ 7
    assert sum(int(byte).bit_count() for byte in changed) == 1
    assert world.statuses() == ["SUCCESS"]
    assert world.tensors["p"].unique().tolist() == [7]


def test_skew_changes_the_order_across_queue_pairs_and_not_within(
    world: FabricWorld, kernel: Kernel
) -> None:
    """Each queue pair has one delay for all of its transfers."""
    inject(world.fabric, "queue-pair-skew:count=null")
    pairs = [world.connect() for _ in range(6)]
    for turn in range(2):
        for pair in pairs:
            world.post(pair, [WR], at=turn * WR)
    kernel.run()
    order = [completion.queue_pair for _time, completion in world.completions]
    numbers = [pair.number for pair in pairs]
    assert order != [*numbers, *numbers]
    for pair in pairs:
        landings = [w for _t, w in world.landings.seen if w.queue_pair == pair.number]
        assert [int(w.destination_offsets[0]) for w in landings] == [0, WR]


# ------------------------------------------------------- through the library


def batch_read(kernel: Kernel, fault: str, qps: int, items: int) -> tuple[Any, torch.Tensor]:
    """The status of one batch of strided items over ``qps`` queue pairs, and d's memory."""
    fabric, results = Fabric(kernel), []
    memories = {name: torch.zeros(items * 2 * WR, dtype=torch.uint8) for name in "pd"}
    memories["p"].fill_(7)
    mori = make(kernel, fabric, {"MORI_IO_SQ_BACKOFF_TIMEOUT_US": "1000"})

    def main() -> None:
        engines, descs = {}, {}
        for name in "pd":
            engine = mori.IOEngine(name, mori.IOEngineConfig("10.0.0.1", 0))
            config = mori.RdmaBackendConfig()
            config.qp_per_transfer, config.enable_notification = qps, False
            engine.create_backend(mori.BackendType.RDMA, config)
            engines[name], descs[name] = engine, engine.register_torch_tensor(memories[name])
        engines["d"].register_remote_engine(engines["p"].get_engine_desc())
        session = engines["d"].create_session(descs["d"], descs["p"])
        inject(fabric, fault)
        offsets = [n * 2 * WR for n in range(items)]
        results.append(session.batch_read(offsets, offsets, [WR] * items, 0))

    kernel.spawn(Process(Node("n", "10.0.0.1"), "w"), main, name="main", guest=False)
    kernel.run(until_ns=10 * SECOND)
    return results[0], memories["d"]


def test_send_queue_full_in_the_middle_of_a_batch(kernel: Kernel) -> None:
    """The second queue pair's share is refused and the call fails; the first one's lands."""
    status, memory = batch_read(kernel, "send-queue-full:skip=1", qps=2, items=10)
    assert status.Failed()
    assert status.Message().startswith("SQ full (batch): ep=1 ")
    rows = memory.view(-1, WR)[::2]
    there = [n for n, row in enumerate(rows) if bool((row == 7).all())]
    assert there == [0, 1, 2, 3, 4]


def test_a_refused_post_lands_what_the_driver_took(kernel: Kernel) -> None:
    """Three of ten work requests land although the status is Failed, and nobody is told."""
    status, memory = batch_read(kernel, "post-refused:posted=3", qps=1, items=10)
    assert status.Failed()
    assert "ibv_post_send failed" in status.Message()
    rows = memory.view(-1, WR)[::2]
    assert [n for n, row in enumerate(rows) if bool((row == 7).all())] == [0, 1, 2]
