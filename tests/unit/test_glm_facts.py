"""What docs/glm.md says of vLLM's own code, asked of that code."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from glm_layers import kpool_prefill
from kv_planning import plan_preset

from sim.model.config import build_vllm_config
from sim.model.presets import get_preset

from vllm.config import SpeculativeConfig  # isort: skip  # after vLLM's variables were prepared
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import MoRIIOError
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector import (
    MoRIIOConnectorScheduler,
)
from vllm.v1.kv_cache_interface import MambaSpec

MORIIO = {
    "kv_connector": "MoRIIOConnector",
    "kv_connector_extra_config": {
        "host_ip": "10.0.0.1",
        "read_mode": "true",
        "handshake_port": 6301,
        "notify_port": 61005,
    },
}
GLM = "glm-flash-nospec"


def moriio_scheduler(model: str, kv_cache_config: Any, speculation: Any = None) -> Any:
    config = build_vllm_config(
        get_preset(model), num_blocks=20, connector=MORIIO, kv_role="kv_consumer"
    )
    object.__setattr__(config, "speculative_config", speculation)
    return MoRIIOConnectorScheduler(config, "engine", kv_cache_config)


def test_two_attention_groups_beside_states_are_refused() -> None:
    """The first gate: the latent caches with their indexers are one group, the rings another."""
    _, scheduler, _ = plan_preset(GLM)
    with pytest.raises(MoRIIOError, match="exactly one transferable attention group, got 2"):
        moriio_scheduler(GLM, scheduler)


def test_wrapped_groups_are_refused() -> None:
    """The second: what a worker is given has every group's layers in a wrapper."""
    (worker, *_), _, _ = plan_preset(GLM)
    with pytest.raises(NotImplementedError, match=r"spec\(s\): \['UniformTypeKVCacheSpecs'\]"):
        moriio_scheduler(GLM, worker)


def test_speculation_by_other_means_than_dspark_is_refused() -> None:
    """The third, which is behind the first: it stops MTP with a single attention group, too."""
    _, scheduler, _ = plan_preset("kimi-linear")
    mtp = SpeculativeConfig.__new__(SpeculativeConfig)
    object.__setattr__(mtp, "method", "mtp")
    with pytest.raises(MoRIIOError, match="DSpark speculative decoding only, got method='mtp'"):
        moriio_scheduler("kimi-linear", scheduler, mtp)


def test_groups_that_cannot_be_transferred_are_refused_without_their_names() -> None:
    """What docs/requirements.md says of models that no preset is."""
    for is_alike, message in ((True, "an attention group"), (False, "to use the same cache spec")):
        _, scheduler, _ = plan_preset("kimi-linear")
        states = [g for g in scheduler.kv_cache_groups if isinstance(g.kv_cache_spec, MambaSpec)]
        if is_alike:
            scheduler.kv_cache_groups = states
        else:
            other = replace(states[-1].kv_cache_spec, num_speculative_blocks=3)
            states[-1].kv_cache_spec = other
        with pytest.raises(MoRIIOError, match=rf"{message}$"):
            moriio_scheduler("kimi-linear", scheduler)


@pytest.mark.parametrize(
    ("starts", "written"),
    [
        ([0], {3: [0, 1, 2, 3], 7: [4, 5, 6, 7]}),
        ([6], {11: [8, 9, 10, 11]}),
        # The second request's first entry, that of its tokens 4 to 7, is made of rows of the first.
        (
            [0, 6],
            {3: [0, 1, 2, 3], 7: [4, 5, 6, 7], 107: [6, 7, 106, 107], 111: [108, 109, 110, 111]},
        ),
    ],
)
def test_prefill_makes_entries_of_what_lies_before_them_in_the_batch(
    monkeypatch: pytest.MonkeyPatch, starts: list[int], written: dict[int, list[int]]
) -> None:
    """Right for chunks that begin where a group does. The first entry of another chunk is left out,
    or made of another request's keys."""
    calls: list[Any] = []
    monkeypatch.setattr(
        kpool_prefill,
        "kpool_ops",
        SimpleNamespace(
            kpool_compress_and_write_cache=lambda *args, **options: calls.append((args, options))
        ),
    )
    # Rows of 6 or 8 tokens for each request, the second one's numbered from 100.
    tokens = [
        100 * n + position
        for n, start in enumerate(starts)
        for position in range(start, start + (8 if start == 0 else 6))
    ]
    keys = torch.tensor(tokens)[:, None].float()
    slots = torch.tensor([token if token % 100 % 4 == 3 else -1 for token in tokens])
    kpool_prefill._kpool_compress_insert(keys, keys, keys, keys, slots, 4, 1, round_scale=False)
    ((_, gathered, *_), options) = calls[0]
    found = {
        token: row.flatten().int().tolist()
        for token, row, is_written in zip(tokens, gathered, options["write_mask"], strict=True)
        if is_written
    }
    assert found == written
