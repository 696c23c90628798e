from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv_planning import KVCacheLayout, plan_preset, plan_specs

from sim.model.arena import Arena
from sim.model.caches import PAGE_SIZE, KVCaches
from sim.model.config import build_vllm_config
from sim.model.presets import PRESETS, get_preset

LAYOUTS = [layout.name for layout in KVCacheLayout]
NUM_BLOCKS = 20


def allocate(name: str, layout: str, tp_size: int = 1) -> KVCaches:
    """Caches of a preset, or of one of the structures below that no preset has."""
    if name in STRUCTURES:
        preset, specs = STRUCTURES[name]
        config = build_vllm_config(
            get_preset(preset), num_blocks=NUM_BLOCKS, max_model_len=16, max_num_batched_tokens=64
        )
        config.cache_config.mamba_cache_mode = "align"
        workers, _, resolved = plan_specs(config, [specs()], [layout])
    else:
        workers, _, resolved = plan_preset(
            name, tp_size=tp_size, layout=layout, num_blocks=NUM_BLOCKS
        )
    assert resolved.name == layout
    return KVCaches.allocate(workers[0], resolved.name, Arena())


def packed_specs() -> dict[str, Any]:
    """Recurrent layers, then latent layers with a pooled indexer: three page sizes."""
    import torch
    from vllm.v1.kv_cache_interface import MambaSpec, MLAAttentionSpec

    latent = MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=16, dtype=torch.bfloat16)
    indexer = MLAAttentionSpec(
        block_size=64, num_kv_heads=1, head_size=12, dtype=torch.uint8, tokens_per_state=4
    )
    state = MambaSpec(
        block_size=64,
        shapes=((24, 3), (2, 8, 8)),
        dtypes=(torch.bfloat16, torch.float32),
        page_size_padded=latent.page_size_bytes,
        mamba_cache_mode="align",
    )
    specs: dict[str, Any] = {f"layers.{i}.linear": state for i in range(3)}
    for i in (3, 4):
        specs |= {f"layers.{i}.indexer": indexer, f"layers.{i}.attn": latent}
    return specs


STRUCTURES = {"packed": ("deepseek-mla", packed_specs)}
HYBRIDS = [name for name, preset in PRESETS.items() if preset.is_hybrid]
COMPACT = [layout.name for layout in KVCacheLayout if layout.is_block_compact]
PACKED = [name for name, preset in PRESETS.items() if preset.supported_layouts == ("BLHNC",)]


def layouts_of(name: str) -> list[str]:
    """Those that can be planned, whether or not the model's kernels accept them."""
    if name in PACKED:
        return ["BLHNC"]
    # A page is a state for one group and tokens for another, so its bytes have to lie together.
    return COMPACT if name in HYBRIDS else LAYOUTS


EVERY_CACHE = [(name, layout) for name in PRESETS for layout in layouts_of(name)]
every_cache = pytest.mark.parametrize(("name", "layout"), EVERY_CACHE)
every_state_cache = pytest.mark.parametrize(
    ("name", "layout"), [case for case in EVERY_CACHE if case[0] in HYBRIDS]
)
CASES = [*EVERY_CACHE, ("packed", "BLHNC")]


@cache
def shared_caches(name: str, layout: str) -> KVCaches:
    """For tests that do not write."""
    return allocate(name, layout)


@cache
def owners(caches: KVCaches) -> np.ndarray[Any, Any]:
    """For each byte of the backing and each layer, the block it belongs to, or -1."""
    result = np.full((len(caches.views), caches.backing.numel()), -1)
    for row, view in zip(result, caches.views.values(), strict=True):
        by_byte = view.view(caches.backing.dtype)
        marks = np.lib.stride_tricks.as_strided(
            row[by_byte.storage_offset() :],
            tuple(by_byte.shape),
            tuple(stride * row.itemsize for stride in by_byte.stride()),
        )
        marks[...] = np.arange(marks.shape[0])[:, None, None, None]
    return result


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "tp_size"), [("llama", 1), ("llama", 2), ("deepseek-mla", 1)])
def test_slots_are_the_views_memory_by_token(name: str, tp_size: int, layout: str) -> None:
    """What is written to a token's slot is what the connector's tensor holds for it."""
    caches = allocate(name, layout, tp_size)
    block_size = get_preset(name).block_size
    for index, layer in enumerate(caches.views):
        slots = caches.slots(layer)
        view = caches.views[layer].view(caches.backing.dtype)
        assert slots.shape[:2] == (NUM_BLOCKS, block_size)
        slots[[5, 2], [3, 1]] = index + 1
        assert view[5, :, 3].eq(index + 1).all()
        assert view[2, :, 1].eq(index + 1).all()
        assert int((view != 0).sum()) == 2 * slots[0, 0].size


@every_cache
def test_the_layers_of_a_group_are_disjoint_and_fill_the_cache(name: str, layout: str) -> None:
    """No two layers of one group share a byte, and the attention layers waste none, unless layers
    of different sizes are packed into blocks."""
    caches = shared_caches(name, layout)
    tensor_size = caches.config.kv_cache_tensors[0].size
    owned = owners(caches) >= 0
    rows = dict(zip(caches.views, owned, strict=True))
    for group in caches.config.kv_cache_groups:
        count = sum(rows[layer].astype(int) for layer in group.layer_names)
        assert max(count) == 1
        if group.layer_names[0] in caches.layers and name not in PACKED:
            assert (count == 1)[:tensor_size].all()


@pytest.mark.parametrize("name", PRESETS)
def test_the_backing_is_whole_zeroed_pages(name: str) -> None:
    """As on ROCm, so that it can be one memory region."""
    caches = allocate(name, get_preset(name).supported_layouts[0])
    assert caches.backing.data_ptr() % PAGE_SIZE == 0
    assert caches.backing.numel() % PAGE_SIZE == 0
    assert caches.backing.numel() == caches.backing.untyped_storage().nbytes()
    assert caches.backing.count_nonzero() == 0
    storages = {view.untyped_storage().data_ptr() for view in caches.views.values()}
    assert storages == {caches.backing.data_ptr()}


@pytest.mark.parametrize(("name", "layout"), CASES)
@given(data=st.data())
def test_a_byte_range_is_attributed_to_every_block_it_touches(
    name: str, layout: str, data: st.DataObject
) -> None:
    """The arithmetic over strides agrees with marking every single byte."""
    caches = shared_caches(name, layout)
    owner = owners(caches)
    end = caches.backing.numel()
    offsets = data.draw(st.lists(st.integers(0, end), max_size=5))
    sizes = [data.draw(st.integers(0, min(end - offset, 3000))) for offset in offsets]
    touched = caches.footprint().touched(offsets, sizes)
    expected = [
        (index, layer, block)
        for index, (offset, size) in enumerate(zip(offsets, sizes, strict=True))
        for layer, row in enumerate(owner)
        for block in sorted(set(row[offset : offset + size].tolist()) - {-1})
    ]
    found = zip(
        touched.range_index.tolist(),
        touched.layer_index.tolist(),
        touched.block_id.tolist(),
        strict=True,
    )
    assert list(found) == expected
    assert touched.blocks.tolist() == sorted({block for _, _, block in expected})


def test_a_long_list_of_ranges_is_attributed_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result does not depend on how many ranges are looked at together."""
    caches = shared_caches("packed", "BLHNC")
    offsets = np.arange(0, caches.backing.numel(), 100)
    at_once = caches.footprint().touched(offsets, 250)
    monkeypatch.setattr("sim.model.footprint._MAX_PAIRS", 50)
    in_pieces = caches.footprint().touched(offsets, 250)
    assert len(offsets) > 50
    np.testing.assert_array_equal(in_pieces.range_index, at_once.range_index)
    np.testing.assert_array_equal(in_pieces.layer_index, at_once.layer_index)
    np.testing.assert_array_equal(in_pieces.block_id, at_once.block_id)


def test_overlaid_groups_are_all_named() -> None:
    """Who owns a shared block at the time is for the caller to know."""
    caches = shared_caches("gemma-swa", "LBHNC")
    footprint = caches.footprint()
    touched = footprint.touched([0], [1])
    group_firsts = [g.layer_names[0] for g in caches.config.kv_cache_groups]
    assert len(group_firsts) > 1
    assert [footprint.layers[i] for i in touched.layer_index] == group_firsts


def test_a_recurrent_layer_has_no_token_slots() -> None:
    """A state is not per token; its layer is in the views, and not among those with slots."""
    caches = shared_caches("packed", "BLHNC")
    assert caches.state_layers == ("layers.0.linear", "layers.2.linear", "layers.1.linear")
    assert "layers.0.linear" in caches.views
    assert caches.layers == (
        "layers.3.indexer",
        "layers.3.attn",
        "layers.4.indexer",
        "layers.4.attn",
    )
    with pytest.raises(KeyError, match=r"no attention layer 'layers\.0\.linear'.*layers\.3\.attn"):
        caches.slots("layers.0.linear")


@every_state_cache
def test_the_states_are_the_views_memory_by_block(name: str, layout: str) -> None:
    """What is written to a state is what the connector's tensor holds for it, and no more."""
    caches = allocate(name, layout)
    size = sum(piece.size for piece in get_preset(name).state_pieces(1, 0))
    for index, layer in enumerate(caches.state_layers):
        states = caches.states(layer)
        assert states.shape == (NUM_BLOCKS, size)
        caches.backing.zero_()
        states[[5, 2]] = index + 1
        assert caches.views[layer][5].eq(index + 1).all()
        assert caches.backing.count_nonzero() == 2 * size
        assert states.shape == (
            NUM_BLOCKS,
            sum(p.size for p in get_preset(name).state_pieces(1, 0)),
        )


@every_state_cache
def test_the_parts_of_a_state_lie_where_vllm_and_its_connector_look(name: str, layout: str) -> None:
    """vLLM's layers and a connector that moves the parts separately agree on the split."""
    from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_layout import kda_conv_ssm
    from vllm.model_executor.layers.mamba.abstract import MambaBase

    caches = allocate(name, layout)
    (first, *_) = caches.config.kv_cache_groups
    layer = first.layer_names[0]
    spec = caches.specs[layer]
    parts = caches.state_parts(layer)
    caches.states(layer)[3, parts["conv"]] = 1
    caches.states(layer)[3, parts["ssm"]] = 2

    class Owner:
        get_state_shape = staticmethod(lambda: spec.shapes)
        get_state_dtype = staticmethod(lambda: spec.dtypes)
        kv_cache: Any = ()

    owner = Owner()
    MambaBase.bind_kv_cache(owner, caches.views[layer])
    for conv, ssm in (owner.kv_cache, kda_conv_ssm(caches.views[layer], spec)):
        for tensor, value in ((conv, 1), (ssm, 2)):
            block = tensor[3].contiguous().view(caches.backing.dtype)
            assert block.eq(value).all()


@pytest.mark.parametrize("name", HYBRIDS)
def test_padding_belongs_to_no_block_of_states(name: str) -> None:
    """Bytes behind a state are the attention groups' alone."""
    caches = shared_caches(name, layouts_of(name)[0])
    (group, *_) = caches.config.kv_cache_groups
    first = caches.views[group.layer_names[0]].view(caches.backing.dtype)
    page = caches.specs[group.layer_names[0]].page_size_bytes
    footprint = caches.footprint()
    start = first[2].storage_offset()
    touched = footprint.touched([start + page - 1, start], [1, 1])
    names = np.array(footprint.layers)[touched.layer_index]
    assert set(touched.block_id.tolist()) == {2}
    assert set(names[touched.range_index == 0]) <= set(caches.layers)
    assert group.layer_names[0] in names[touched.range_index == 1]


def test_an_attention_layer_has_no_states() -> None:
    """The message names the layers that have."""
    with pytest.raises(KeyError, match=r"no recurrent layer 'model.*; there are: model\.layers\.0"):
        shared_caches("kimi-linear", "LBNHC").states("model.layers.3.self_attn.attn")
    with pytest.raises(KeyError, match="there are: none"):
        shared_caches("llama", "LBHNC").state_parts("model.layers.0.self_attn.attn")
