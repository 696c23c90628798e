"""Copies on write, which vLLM's scheduler may ask the worker for."""

from __future__ import annotations

import pytest
import torch
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy

from sim.run import TestBed, run
from sim.scenario import Scenario, Topology, UniformWorkload
from sim.units import MS

ONE = UniformWorkload(requests=1, prompt_tokens=(200, 200), output_tokens=(30, 30))


@pytest.mark.parametrize("model", ["llama", "kimi-linear"])
def test_a_block_is_copied_in_all_layers(model: str) -> None:
    """By vLLM's own function; whoever knew the target's content has to look again."""
    copied: list[bool] = []

    def copy(bed: TestBed) -> None:
        runner = bed.engines[0].workers[0].runner
        assert runner is not None
        memory = runner.model.memory
        free = len(memory.versions) - 1
        before = memory.versions[free]
        runner.model.copy_blocks([KVCacheBlockCopy(1, free)])
        for view in memory.caches.views.values():
            source, target = (view[block].contiguous().view(torch.uint8) for block in (1, free))
            copied.append(bool(source.any()) and torch.equal(source, target))
        assert memory.versions[free] == before + 1
        write = memory.last_write(free)
        assert write is not None
        assert write.describe() == "the copy of blocks [1] on c0"

    def prepare(bed: TestBed) -> None:
        bed.kernel.call_later(60 * MS, copy, bed)

    scenario = Scenario(model=model, topology=Topology(colocated=True), workload=ONE)
    assert run(scenario, prepare=prepare).outcome.passed
    assert copied
    assert all(copied)
