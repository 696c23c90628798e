"""Models with a pooling indexer: what vLLM makes of their layers, and what lies where."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from glm_layers import specs_of_layers
from kv_planning import plan_preset

from sim.model.arena import Arena
from sim.model.caches import KVCaches
from sim.model.config import build_vllm_config
from sim.model.presets import GEOMETRIES, PRESETS, Geometry, get_preset
from sim.model.speculation import Speculation

from vllm.v1.kv_cache_interface import (  # isort: skip  # after vLLM's variables were prepared
    CircularBufferSpec,
    MambaSpec,
    UniformTypeKVCacheSpecs,
)

MODELS = [name for name, preset in PRESETS.items() if preset.sizes("real").indexer is not None]
every_model = pytest.mark.parametrize("name", MODELS)
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES)


def mtp(drafts: int) -> Speculation | None:
    return Speculation("mtp", drafts) if drafts else None


def build(name: str, geometry: Geometry, tp_size: int, **options: Any) -> Any:
    return build_vllm_config(
        get_preset(name),
        num_blocks=9,
        geometry=geometry,
        tp_size=tp_size,
        max_model_len=65536,
        **options,
    )


@every_model
@every_geometry
@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
@pytest.mark.parametrize(("is_caching", "drafts"), [(True, 0), (False, 0), (True, 1), (True, 7)])
def test_the_specs_are_those_of_vllms_own_layers(
    name: str, geometry: Geometry, tp_size: int, is_caching: bool, drafts: int
) -> None:
    """Every field of every layer, in the same order, with and without states for prefixes, and of
    the drafter's layer if there is one."""
    options = {"enable_prefix_caching": is_caching, "speculation": mtp(drafts)}
    config = build(name, geometry, tp_size, **options)
    specs = get_preset(name).cache_specs(tp_size, geometry, config)
    of_layers = specs_of_layers(config, tp_size, num_drafters=1 if drafts else 0)
    assert list(specs.items()) == list(of_layers.items())


FIGURES = {
    # tokens of a block, bytes of an indexer's page, of a latent or state page, and of a block
    ("glm-flash", "real", 8, 0): (640, 21_120, 655_360, 7_468_032),
    ("glm-flash", "real", 8, 1): (640, 21_120, 655_360, 8_143_872),
    ("glm-flash", "real", 4, 0): (1152, 38_016, 1_179_648, 13_415_424),
    ("glm-flash", "real", 4, 1): (1152, 38_016, 1_179_648, 14_631_936),
    ("glm-flash", "reduced", 1, 0): (640, 1920, 10_240, 24_576),
    ("glm-flash", "reduced", 1, 1): (640, 1920, 10_240, 36_480),
    ("glm-kpool16-nospec", "real", 8, 0): (1024, 8448, 1_048_576, 11_627_520),
    ("glm-kpool16-nospec", "real", 8, 1): (1024, 8448, 1_048_576, 12_684_288),
    ("glm-kpool16-nospec", "real", 1, 3): (4608, 38_016, 4_718_592, 57_108_480),
    ("glm-kpool16-nospec", "reduced", 1, 0): (512, 384, 10_240, 21_260),
}


@pytest.mark.parametrize(("name", "geometry", "tp_size", "drafts"), FIGURES)
def test_the_figures_of_a_block(name: str, geometry: Geometry, tp_size: int, drafts: int) -> None:
    """The true ones are what vLLM computes for the model in production."""
    (worker, *_), _, layout = plan_preset(
        name, geometry=geometry, tp_size=tp_size, speculation=mtp(drafts)
    )
    specs = {
        layer: spec
        for group in worker.kv_cache_groups
        for layer, spec in group.kv_cache_spec.kv_cache_specs.items()
    }
    latent = specs["model.layers.3.self_attn.attn"]
    entries = specs["model.layers.3.self_attn.indexer.k_cache"]
    state = specs["model.layers.0.self_attn"]
    (stride,) = {tensor.block_stride for tensor in worker.kv_cache_tensors}
    assert layout.name == "BLHNC"
    assert latent.block_size == entries.block_size == state.block_size
    assert latent.block_size == get_preset(name).tokens_per_block(tp_size, geometry, drafts)
    assert latent.page_size_bytes == state.page_size_bytes
    found = (latent.block_size, entries.page_size_bytes, latent.page_size_bytes, stride)
    assert found == FIGURES[name, geometry, tp_size, drafts]


@every_model
@every_geometry
def test_a_drafter_is_in_the_groups_of_the_model(name: str, geometry: Geometry) -> None:
    """One layer more in the attention group and among the rings, which are marked for it, and a
    group of states less, because a block holds more."""
    (worker, *_), scheduler, _ = plan_preset(name, geometry=geometry, speculation=mtp(1))
    layers = [len(group.layer_names) for group in worker.kv_cache_groups]
    assert layers == {"reduced": [3, 2, 2, 6, 3], "real": [12, 11, 11, 24, 12]}[geometry]
    for config in (worker, scheduler):
        marks = [group.is_eagle_group for group in config.kv_cache_groups]
        assert marks == [False, False, False, True, True]
    drafter = set(get_preset(name).drafter("mtp").layers[geometry])
    *_, attention, rings = (set(group.layer_names) for group in worker.kv_cache_groups)
    assert drafter <= attention | rings
    assert len(drafter & rings) == 1


@pytest.mark.parametrize(
    ("name", "drafts", "tokens"),
    [
        *(("glm-flash", drafts, tokens) for drafts, tokens in [(0, 4), (1, 8), (4, 8), (5, 16)]),
        *(("glm-flash", drafts, tokens) for drafts, tokens in [(7, 16), (12, 16), (13, 32)]),
        *(("glm-kpool16-nospec", drafts, tokens) for drafts, tokens in [(0, 16), (1, 32)]),
    ],
)
def test_a_ring_has_room_for_a_group_and_all_drafts(name: str, drafts: int, tokens: int) -> None:
    """Else a draft would overwrite a token of the group that it may not belong to."""
    config = build(name, "real", 8, speculation=mtp(drafts))
    specs = get_preset(name).cache_specs(8, "real", config).values()
    rings = [spec for spec in specs if isinstance(spec, CircularBufferSpec)]
    assert {ring.block_size for ring in rings} == {tokens}


@every_model
@every_geometry
def test_the_groups_are_those_of_the_whole_model(name: str, geometry: Geometry) -> None:
    """States first, in the order of their first layers; then the latent caches with their indexers
    in one group; then the rings. Workers see every layer's spec, schedulers the first one's."""
    (worker, *_), scheduler, _ = plan_preset(name, geometry=geometry)
    groups = worker.kv_cache_groups
    kinds = [
        Counter(
            (type(spec).__name__, int(spec.tokens_per_state))
            for spec in group.kv_cache_spec.kv_cache_specs.values()
        )
        for group in groups
    ]
    indexer = get_preset(name).sizes(geometry).indexer
    assert indexer is not None
    pooled, states = indexer.tokens_per_entry, {"reduced": [2, 2, 2, 1], "real": [9, 9, 8, 8]}
    latents = {"reduced": 2, "real": 11}[geometry]
    assert kinds == [
        *({("MambaSpec", -1): count} for count in states[geometry]),
        {("MLAAttentionSpec", pooled): latents, ("MLAAttentionSpec", 1): latents},
        {("CircularBufferSpec", 1): latents},
    ]
    assert [group.layer_names[0].split(".")[2] for group in groups] == list("012433")
    assert all(isinstance(group.kv_cache_spec, UniformTypeKVCacheSpecs) for group in groups)
    for group, of_scheduler in zip(groups, scheduler.kv_cache_groups, strict=True):
        first = group.kv_cache_spec.kv_cache_specs[group.layer_names[0]]
        assert of_scheduler.kv_cache_spec == first
    assert scheduler.prefix_cacheable_group_ids == (0, 1, 2, 3, 4)
    assert get_preset(name).num_groups == len(groups)


@every_model
def test_a_ring_is_one_block_a_request_and_never_zeroed(name: str) -> None:
    """It holds as many tokens as are pooled, a key and a gate score each, and stays out of prefix
    caching."""
    config = build(name, "real", 8)
    (ring,) = {
        spec
        for spec in get_preset(name).layer_specs(8, "real", config).values()
        if isinstance(spec, CircularBufferSpec)
    }
    indexer = get_preset(name).sizes("real").indexer
    assert indexer is not None
    assert ring.block_size == indexer.tokens_per_entry
    assert ring.page_size_bytes == indexer.tokens_per_entry * 2 * 128 * 2
    assert ring.max_num_blocks_per_req(config, 100_000) == 1
    assert not ring.prefix_cacheable


@every_model
def test_the_connector_gets_views_of_whole_blocks_over_one_storage(name: str) -> None:
    """A layer's page of block b lies at its own offset plus b strides, and all strides are equal:
    what a block holds depends on the group that owns it."""
    (worker, *_), _, layout = plan_preset(name, num_blocks=20)
    caches = KVCaches.allocate(worker, layout.name, Arena())
    stride = worker.kv_cache_tensors[0].block_stride
    for group in worker.kv_cache_groups:
        end = 0
        for layer in sorted(group.layer_names, key=lambda n: caches.views[n].data_ptr()):
            view, spec = caches.views[layer].view(caches.backing.dtype), caches.specs[layer]
            assert view.untyped_storage().data_ptr() == caches.backing.data_ptr()
            if isinstance(spec, MambaSpec):
                assert view.shape == (20, 1, 1, spec.real_page_size_bytes)
            else:
                content = spec.state_content_size_bytes
                states = spec.block_size // int(spec.tokens_per_state)
                assert view.shape == (20, spec.num_heads, states, content)
                assert view.stride()[1:] == (states * content, content, 1)
            assert view.stride(0) == stride
            assert view.storage_offset() >= end
            end = view.storage_offset() + spec.page_size_bytes
        assert end <= stride
