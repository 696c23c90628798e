"""What ties data-parallel ranks together: their hosts' all-reduce, and the waves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.distributed.utils import cpu_all_reduce_
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequestType

from sim.engine.data_parallel import DataParallelGroup
from sim.kernel import Kernel, Node, Process, Seed


class Rank:
    """What the group needs of an engine."""

    def __init__(self, group: DataParallelGroup, number: int) -> None:
        self.data_parallel_rank = number
        self.incarnation = 0
        self.alive = True
        self.sent: list[Any] = []
        group.ranks.append(self)  # type: ignore[arg-type]

    def send(self, kind: EngineCoreRequestType, message: Any) -> None:
        assert kind is EngineCoreRequestType.START_DP_WAVE
        self.sent.append(message)


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_hosts_add_up_what_they_have(size: int) -> None:
    """vLLM's own small all-reduce gives every rank the sum, several times in a row."""
    kernel = Kernel(Seed(1))
    group = DataParallelGroup(kernel, "p0", size)
    sums: dict[int, list[int]] = {rank: [] for rank in range(size)}

    def reduce(rank: int) -> None:
        engine = SimpleNamespace(data_parallel_rank=rank, incarnation=0)
        host = group.host_group(engine, "test")  # type: ignore[arg-type]
        for step in range(3):
            kernel.sleep(1_000 * rank * step)
            total = cpu_all_reduce_(torch.tensor([10**rank]), host)  # type: ignore[arg-type]
            sums[rank].append(int(total))

    with kernel.running():
        for rank in range(size):
            process = Process(Node(f"p{rank}", f"10.0.0.{rank}"), "core")
            kernel.spawn(process, lambda rank=rank: reduce(rank), name="main")
        kernel.run(until_ns=10**9)
    assert sums == {rank: [int("1" * size)] * 3 for rank in range(size)}


def tell(rank: Rank, group: DataParallelGroup, **word: int) -> None:
    group.coordinate(rank, EngineCoreOutputs(**word))  # type: ignore[arg-type]


def test_a_wave_begins_once_for_all() -> None:
    """Everybody is told who began it; a second rank that says so is late."""
    group = DataParallelGroup(Kernel(Seed(1)), "d0", 2)
    first, second = Rank(group, 0), Rank(group, 1)
    tell(second, group, start_wave=0)
    tell(first, group, start_wave=0)
    assert first.sent == second.sent == [(0, 1)]


def test_a_wave_that_is_over_can_be_followed_by_the_next() -> None:
    """A rank that still speaks of the old wave begins none."""
    group = DataParallelGroup(Kernel(Seed(1)), "d0", 2)
    first, second = Rank(group, 0), Rank(group, 1)
    tell(first, group, start_wave=0)
    tell(first, group, wave_complete=0)
    tell(second, group, start_wave=0)
    tell(second, group, start_wave=1)
    assert first.sent == [(0, 0), (1, 1)]


def test_an_engine_alone_is_called_as_its_instance() -> None:
    """Only where there are several does the name of an engine have a rank in it."""
    kernel = Kernel(Seed(1))
    assert DataParallelGroup(kernel, "p0", 1).name_of(0) == "p0"
    assert DataParallelGroup(kernel, "p0", 2).name_of(1) == "p0-dp1"
