"""Cache tensors in the hands of a connector."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sim.device import Stream
from sim.engine.device_tensor import DeviceTensor
from sim.kernel import Kernel, Node, Process, Seed
from sim.units import MS


class Bench:
    """A cache of 4 blocks, 2 heads, 3 tokens, 5 elements, and a stream that is busy for 7 ms."""

    def __init__(self) -> None:
        self.kernel = Kernel(Seed(1))
        self.process = Process(Node("n", "10.0.0.1"), "rank0")
        self.stream = Stream(self.kernel, self.process, "stream")
        self.memory = torch.zeros(4, 2, 3, 5)
        self.written: list[list[int]] = []
        self.cache = DeviceTensor.on(self.stream, self.memory, self._wrote)
        self.stream.enqueue("kernel", 7 * MS, at_end=lambda: self.memory.fill_(1))

    def _wrote(self, addresses: np.ndarray) -> None:
        self.written.append(np.unique((addresses - self.memory.data_ptr()) // (30 * 4)).tolist())

    def run(self, action: object) -> int:
        """The virtual time that ``action`` took, in milliseconds."""
        with self.kernel.running():
            self.kernel.spawn(self.process, action, name="main")
            self.kernel.run()
        return self.kernel.now_ns // MS


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    "look",
    [
        lambda cache: cache.shape,
        lambda cache: cache.stride(),
        lambda cache: cache.data_ptr(),
        lambda cache: cache.view(torch.uint8),
        lambda cache: cache.reshape(-1, 5).shape,
        lambda cache: cache[1:].untyped_storage(),
    ],
)
def test_looking_waits_for_nothing(bench: Bench, look: object) -> None:
    """The host knows shapes and addresses."""
    times: list[int] = []

    def action() -> None:
        look(bench.cache)  # type: ignore[operator]
        times.append(bench.kernel.now_ns)

    bench.run(action)
    assert times == [0]


def test_a_copy_to_the_host_has_what_the_stream_wrote_before(bench: Bench) -> None:
    """It is queued behind the kernel; a view of the cache does not change that."""
    found: list[tuple[int, float]] = []

    def action() -> None:
        blocks = torch.tensor([1, 2])
        copied = bench.cache.reshape(4, 2, 15)[blocks].detach().cpu()
        found.append((bench.kernel.now_ns // MS, float(copied.sum())))

    bench.run(action)
    assert found == [(7, 60.0)]


def test_what_is_written_comes_after_the_kernel_and_is_told(bench: Bench) -> None:
    """By block: two tokens of blocks 1 and 3, through an index, as connectors do it."""

    def action() -> None:
        blocks, offsets = torch.tensor([1, 3]), torch.tensor([0, 2])
        bench.cache[blocks, :, offsets] = torch.full((2, 2, 5), 9.0)

    bench.run(action)
    assert bench.written == [[1, 3]]
    assert (bench.memory[1, :, 0] == 9).all()
    assert float(bench.memory.sum()) == 100 + 20 * 9
