"""Cache tensors in the hands of a connector."""

from __future__ import annotations

from collections.abc import Callable

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

    def _wrote(self, addresses: np.ndarray, sizes: np.ndarray) -> None:
        blocks = [
            (address - self.memory.data_ptr() + offset) // (30 * 4)
            for address, size in zip(addresses, sizes, strict=True)
            for offset in range(0, size, 4)
        ]
        self.written.append(np.unique(blocks).tolist())

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


@pytest.mark.parametrize(
    ("write", "blocks"),
    [
        (lambda cache: cache.view(-1)[20:70].zero_(), [0, 1, 2]),
        (lambda cache: cache.view(-1).__setitem__(slice(30, 91), 0), [1, 2, 3]),
        (lambda cache: cache.view(8, 15).__setitem__((slice(None), 3), 0), [0, 1, 2, 3]),
        (lambda cache: cache.data.__setitem__(2, 0), [2]),
        (lambda cache: cache.mT[3].zero_(), [3]),
        (lambda cache: torch.mul(cache[1], 0, out=cache[2]), [2]),
        (lambda cache: torch._foreach_zero_([cache[0], cache[3]]), [0, 3]),
        (lambda cache: cache[1].mul_(0), [1]),
        (lambda cache: cache.unbind(0)[2].fill_(0), [2]),
    ],
)
def test_whatever_writes_through_torch_is_told(
    bench: Bench, write: Callable[[DeviceTensor], object], blocks: list[int]
) -> None:
    """With all blocks that it changes, and no others; after the kernel."""
    bench.run(lambda: write(bench.cache))
    zeros = (bench.memory.view(4, -1) == 0).any(1)
    assert sorted({block for told in bench.written for block in told}) == blocks
    assert set(np.flatnonzero(zeros.numpy())) == set(blocks)
    assert bench.kernel.now_ns == 7 * MS


def test_several_caches_can_be_put_together(bench: Bench) -> None:
    """By operations that take them in a list."""
    found: list[float] = []
    both = [bench.cache[0], bench.cache[1]]
    bench.run(lambda: found.append(float(torch.cat(both).sum() + torch.stack(both).sum())))
    assert found == [120.0]
    assert bench.written == []
