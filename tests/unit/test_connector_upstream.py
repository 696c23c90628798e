"""What the connector takes from vLLM's MoRIIO connector, and what it has in common with it.

A vLLM release that changes one of these pieces fails here, by name, before anything runs on it.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from kv_planning import plan_specs
from vllm.distributed.kv_transfer.kv_connector.utils import clip_ssm_state_blocks
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.moriio import (
    moriio_common,
    moriio_connector,
    moriio_engine,
    moriio_layout,
)
from vllm.v1.request import RequestStatus

from connector import HybridReadConnector, wire
from connector.core.groups import GroupKind
from connector.core.offer import EXTENSION_KEY, HoldId
from connector.core.payload import NULL_BLOCK
from connector.vllm_specs import transfer_groups
from sim.model.config import build_vllm_config
from sim.model.presets import get_preset

EXTRA = {"read_mode": "true", "http_port": 8000, "host_ip": "10.0.0.1"}
PORTS = {"handshake_port": 6301, "notify_port": 61005}


# -------------------------------------------------------------- same bytes on the wire


def plan(model: str, **extra: object) -> tuple[Any, Any]:
    """vLLM's configuration of a producer, and its scheduler's cache configuration."""
    preset = get_preset(model)
    config = build_vllm_config(
        preset,
        num_blocks=400,
        max_model_len=preset.tokens_per_block() * 40,
        max_num_batched_tokens=512,
        connector={
            "kv_connector": "MoRIIOConnector",
            "kv_connector_extra_config": {**EXTRA, **PORTS, **extra},
        },
        kv_role="kv_producer",
        engine_id="p0",
    )
    specs = [preset.layer_specs(1, "reduced", config)]
    _workers, scheduler, _layout = plan_specs(config, specs, list(preset.supported_layouts))
    return config, scheduler


def blocks_of(scheduler: Any, num_tokens: int) -> tuple[list[int], ...]:
    """The lists that vLLM hands over at the end of a request with ``num_tokens`` computed."""
    lists, next_id = [], 1
    for group in transfer_groups(scheduler).groups:
        count = -(-num_tokens // group.block_size)
        skipped = 0
        if group.kind is GroupKind.STATE:
            skipped = count - 1
        elif group.window is not None:
            skipped = max(0, num_tokens - group.window + 1) // group.block_size
        fresh = count - skipped + group.num_scratch
        lists.append([NULL_BLOCK] * skipped + list(range(next_id, next_id + fresh)))
        next_id += fresh
    return tuple(lists)


def request(num_tokens: int) -> Any:
    return SimpleNamespace(
        request_id="req-p0",
        status=RequestStatus.FINISHED_LENGTH_CAPPED,
        num_prompt_tokens=num_tokens,
        prompt_token_ids=list(range(num_tokens)),
        mm_features=[],
        lora_request=None,
        prompt_embeds=None,
        kv_transfer_params={"do_remote_decode": True, "transfer_id": "tx-1"},
    )


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    "model", ["llama", "deepseek-mla", "gemma-swa", "kimi-linear", "qwen-hybrid"]
)
@pytest.mark.parametrize("num_tokens", [1, 65, 200, 517])
def test_the_parameters_are_upstreams_byte_for_byte(model: str, num_tokens: int) -> None:
    """For every layout that upstream transfers; ours has one key more, and nothing else."""
    config, scheduler = plan(model)
    theirs = moriio_connector.MoRIIOConnector(config, KVConnectorRole.SCHEDULER, scheduler)
    ours = HybridReadConnector(config, KVConnectorRole.SCHEDULER, scheduler)
    blocks = blocks_of(scheduler, num_tokens)
    ours.update_state_after_alloc(request(num_tokens), _Blocks(blocks), 0)
    held, mine = ours.request_finished_all_groups(request(num_tokens), blocks)
    held_there, upstream = theirs.request_finished_all_groups(request(num_tokens), blocks)
    assert (held, held_there) == (True, True)
    assert set(mine.pop(EXTENSION_KEY)) >= {"version", "incarnation", "hold"}
    encode = msgspec.msgpack.Encoder(order="sorted").encode
    assert encode(mine["remote_block_ids"]) == encode(upstream["remote_block_ids"])
    assert encode(mine) == encode(upstream)


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(("extra", "lease_s"), [({}, 60.0), ({"defer_timeout": 7}, 7.0)], ids=str)
def test_the_parameters_state_the_lease(extra: dict[str, object], lease_s: float) -> None:
    """As the producer's scheduler keeps it, whose start and hold stand beside it."""
    config, scheduler = plan("llama", **extra)
    ours = HybridReadConnector(config, KVConnectorRole.SCHEDULER, scheduler)
    blocks = blocks_of(scheduler, 65)
    ours.update_state_after_alloc(request(65), _Blocks(blocks), 0)
    _, params = ours.request_finished_all_groups(request(65), blocks)
    said = params[EXTENSION_KEY]
    producer = ours._producer
    assert producer is not None
    assert (said["lease_s"], said["incarnation"]) == (lease_s, producer.incarnation)
    (lease,) = producer._leases.values()
    assert lease.deadline - lease.since == pytest.approx(lease_s)


class _Blocks:
    def __init__(self, ids: tuple[list[int], ...]) -> None:
        self._ids = ids

    def get_block_ids(self) -> tuple[list[int], ...]:
        return self._ids


@pytest.mark.requirement("R6", "S7")
def test_upstreams_listener_takes_our_release() -> None:
    """The extension is a key that it does not look at."""
    wrapper = moriio_engine.MoRIIOWrapper()
    moriio_common.set_role(moriio_common.ROLE.PRODUCER)
    message = wire.encode_release(wire.Release("tx-1", 2, HoldId("start", 7), 1))
    wrapper._handle_message(message)
    assert wrapper.pop_finished_req_ids() == [moriio_common.MoRIIOTransferAck("tx-1", 2)]


@pytest.mark.requirement("R17", "S7")
def test_we_take_upstreams_releases() -> None:
    """The structured form and the bare one."""
    structured = {"type": "release", "transfer_id": "tx-1", "consumer_tp_size": 4}
    assert wire.decode_release(msgspec.msgpack.encode(structured)) == wire.Release("tx-1", 4)
    assert wire.decode_release(b"tx-1") == wire.Release("tx-1", 1)


@pytest.mark.requirement("R6", "R15", "S7")
def test_upstream_reads_our_welcome_and_we_read_its() -> None:
    """One field more is skipped there, and its absence is understood here."""
    fields = {
        "engine_id": "10.0.0.1:6301",
        "agent_metadata": b"engine",
        "kv_caches_base_addr": [4096],
        "num_blocks": 9,
        "block_len": 64,
        "attn_backend_name": "TRITON_MLA",
    }
    first, second = wire.encode_welcome(
        fields, {"layer": [b"desc"]}, "start", {"layers": {}}, wire.RankPlace(0, 1)
    )
    upstream = msgspec.msgpack.Decoder(moriio_common.MoRIIOAgentMetadata).decode(first)
    assert (upstream.num_blocks, upstream.agent_metadata) == (9, b"engine")
    ours = wire.decode_welcome(first, second)
    assert (ours.incarnation, ours.fingerprint) == ("start", {"layers": {}})
    plain = msgspec.msgpack.encode(moriio_common.MoRIIOAgentMetadata(**fields))
    assert wire.decode_welcome(plain, second).incarnation is None


# ------------------------------------------------------------------ pieces that are used


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            moriio_layout.compute_block_transfer_offsets,
            "layer_name kv_cache layer_to_spec local_block_ids remote_block_ids "
            "remote_num_blocks merge_fn",
        ),
        (
            moriio_layout.compute_head_slice_offsets,
            "local remote local_block_ids remote_block_ids local_head remote_head num_heads "
            "merge_fn",
        ),
        (moriio_layout.get_layer_head_layout, "layer_name kv_cache layer_to_spec"),
        (
            moriio_layout.get_layer_transfer_geometry,
            "layer_name kv_cache layer_to_spec remote_num_blocks",
        ),
        (moriio_layout.is_mla_cache_layer, "layer_to_spec layer_name"),
        (moriio_layout.kda_conv_ssm, "kv_cache spec"),
        (moriio_layout.merge_contiguous_offsets, "offsets_local offsets_remote sizes"),
        (moriio_common.fold_local_rank, "global_dp_rank dp_size_local"),
        (moriio_common.get_peer_zmq_from_request_id, "request_id is_producer"),
        (moriio_common.parse_moriio_zmq_address, "zmq_address"),
        (moriio_common.resolve_host_ip, "extra_config"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_has_the_parameters_it_is_called_with(function: Any, parameters: str) -> None:
    """By name and in order."""
    assert list(inspect.signature(function).parameters) == parameters.split()


@pytest.mark.requirement("R5")
def test_the_settings_that_upstream_reads_are_all_known_here() -> None:
    """Upstream's own sources are searched for the keys that it takes from its extra config."""
    import re

    from connector.core.keys import KNOWN_KEYS

    folder = Path(moriio_common.__file__).parent
    text = "".join(path.read_text() for path in sorted(folder.glob("*.py")))
    pattern = r"extra_config(?:\.get\(\s*|\[\s*)\"(\w+)\""
    found = set(re.findall(pattern, text)) | set(moriio_common._DEPRECATED_ENV_VARS.values())
    assert {"handshake_port", "transfer_timeout", "read_mode"} <= found
    assert found <= set(KNOWN_KEYS)


def test_offsets_of_blocks_are_relative_to_the_layer_and_merged() -> None:
    """Neighbours on both sides become one piece."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    spec = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.bfloat16)
    page = spec.page_size_bytes
    cache = torch.zeros(6, 1, 4, page // 8, dtype=torch.bfloat16)
    offsets = moriio_layout.compute_block_transfer_offsets(
        "layer", cache, {"layer": spec}, [1, 2, 5], [3, 4, 0], 6
    )
    assert offsets == ([page, 5 * page], [3 * page, 0], [2 * page, page])


@pytest.mark.requirement("R7")
def test_the_running_slot_is_the_one_that_upstream_takes() -> None:
    """For every number of blocks and scratch slots."""
    from connector.core.groups import Group, StateShape
    from connector.core.payload import clip

    for scratch in range(4):
        state = StateShape(((1,), (1,)), ("a", "b"), 16, 64, scratch)
        group = Group(GroupKind.STATE, ("kda",), 16, state=state)
        for count in range(8):
            blocks = list(range(1, count + 1))
            assert clip(group, blocks) == clip_ssm_state_blocks(list(blocks), scratch)


def test_messages_have_upstreams_names() -> None:
    """What a peer is asked with, and the ports that it listens on by default."""
    constants = moriio_common.MoRIIOConstants
    assert constants.GET_META_MSG == b"get_meta_msg"
    assert moriio_common.get_port_offset(2, 3, 4) == 11
