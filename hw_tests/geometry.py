"""Reads of whole cache blocks by the connector's own code, compared byte by byte.

A producer's and a consumer's rank register caches in vLLM's layout, full of different bytes. The
connector turns block numbers into offsets and reads. What has to be in the consumer's memory is
computed from vLLM's tensors, not from offsets; every byte of it is compared, read or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hw_tests.process.planning import plan_specs
from sim.model.config import build_vllm_config
from sim.model.presets import Geometry, get_preset

import torch  # isort: skip  # after sim.model.config prepared vLLM's variables
from vllm.v1.kv_cache_interface import KVCacheConfig, MambaSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache

from connector.core.config import Settings
from connector.memory import CacheMemory
from connector.vllm_specs import layer_specs, transfer_groups
from hw_tests.conformance.arm import Arm

NUM_BLOCKS = 20
OURS, THEIRS = (1, 2, 5, 3), (6, 2, 3, 7)
"""Blocks of a request on both sides, some of them neighbours on one side or on both."""
HITS = {"no hit": 0, "partial hit": 2, "full hit": 4}
"""How many blocks the consumer has already and does not read."""

_SETTINGS = Settings(role="kv_consumer", handshake_port=6301, notify_port=61005)


@dataclass
class Rank:
    """One rank's caches, and the connector's idea of them."""

    views: Mapping[str, torch.Tensor]
    memory: CacheMemory
    storages: list[torch.Tensor]

    def snapshot(self) -> list[torch.Tensor]:
        return [storage.clone() for storage in self.storages]


def plan(
    preset_name: str, tp_size: int, geometry: Geometry
) -> tuple[list[KVCacheConfig], KVCacheLayout]:
    """vLLM's plan of all ranks' caches, for an engine of a few blocks."""
    preset = get_preset(preset_name)
    vllm_config = build_vllm_config(
        preset,
        num_blocks=NUM_BLOCKS,
        geometry=geometry,
        tp_size=tp_size,
        max_model_len=preset.tokens_per_block(tp_size, geometry) * 2,
        max_num_batched_tokens=256,
    )
    specs = [preset.cache_specs(tp_size, geometry, vllm_config) for _ in range(tp_size)]
    workers, _, layout = plan_specs(vllm_config, specs, list(preset.supported_layouts))
    return workers, layout


def make_rank(config: KVCacheConfig, layout: KVCacheLayout, device: str, seed: int) -> Rank:
    """Caches full of bytes that ``seed`` decides."""
    views = dict(allocate_kv_cache(config, torch.device(device), layout))
    numbers = torch.Generator().manual_seed(seed)
    storages = []
    for view in {view.untyped_storage().data_ptr(): view for view in views.values()}.values():
        content = torch.empty(0, dtype=torch.uint8, device=device)
        content.set_(view.untyped_storage())
        content.copy_(torch.randint(0, 256, content.shape, dtype=torch.uint8, generator=numbers))
        storages.append(content)
    groups = transfer_groups(config)
    memory = CacheMemory(views, layer_specs(config), groups.payload_index_by_layer())
    return Rank(views, memory, storages)


def check_read(arm: Arm, ours: Rank, theirs: Rank, num_hit: int) -> None:
    """Read the blocks that are not hit, in every layer, and compare all bytes of both sides."""
    module, consumer, producer = arm.transports(_SETTINGS)
    wanted = _expected(ours, theirs, OURS[num_hit:], THEIRS[num_hit:])
    untouched = theirs.snapshot()
    consumer.add_peer(producer.descriptor)
    statuses = [
        consumer.read(session, *offsets)
        for session, offsets in _reads(consumer, producer, ours.memory, theirs.memory, num_hit)
    ]
    for _ in range(20_000):
        if module.state_of(statuses) != module.ReadState.IN_FLIGHT:
            break
        arm.sleep(0.001)
    assert module.state_of(statuses) == module.ReadState.DONE, module.describe_failure(statuses)
    _compare("the consumer's", ours.storages, wanted)
    _compare("the producer's", theirs.storages, untouched)


def _reads(
    consumer: Any, producer: Any, ours: CacheMemory, theirs: CacheMemory, num_hit: int
) -> list[tuple[Any, tuple[list[int], list[int], list[int]]]]:
    reads = []
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        offsets = ours.read_offsets(
            mine, OURS[num_hit:], THEIRS[num_hit:], theirs.num_blocks, other.head_layout
        )
        if not offsets[0]:
            continue
        here = consumer.register(mine.regions[0] if ours.backing is None else ours.backing)
        there = producer.register(other.regions[0] if theirs.backing is None else theirs.backing)
        bases = mine.regions[0].data_ptr() - here.data, other.regions[0].data_ptr() - there.data
        moved = [bases[0] + at for at in offsets[0]], [bases[1] + at for at in offsets[1]]
        reads.append((consumer.open_session(here, there), (*moved, offsets[2])))
    return reads


def _expected(
    ours: Rank, theirs: Rank, here: Sequence[int], there: Sequence[int]
) -> list[torch.Tensor]:
    """The consumer's storages after the read, by copies between vLLM's own views."""
    before = ours.snapshot()
    for layer in ours.memory.layers:
        target, source = ours.views[layer.name], theirs.views[layer.name]
        for mine, other in zip(here, there, strict=True):
            if isinstance(layer.spec, MambaSpec):  # a page is padded beyond both states
                size = int(layer.spec.state_content_size_bytes)
                _page(target, mine, size).copy_(_page(source, other, size))
            else:
                target[mine].copy_(source[other])
    wanted = ours.snapshot()
    for storage, content in zip(ours.storages, before, strict=True):
        storage.copy_(content)
    return wanted


def _page(view: torch.Tensor, block: int, size: int) -> torch.Tensor:
    start = (view.storage_offset() + block * view.stride(0)) * view.element_size()
    page = torch.empty(0, dtype=torch.uint8, device=view.device)
    page.set_(view.untyped_storage(), start, (size,), (1,))
    return page


def _compare(whose: str, found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        wrong = (one != other).nonzero().flatten()
        assert not len(wrong), (
            f"{len(wrong)} of {whose} bytes are wrong in allocation {number}, the first at "
            f"{int(wrong[0])}"
        )
