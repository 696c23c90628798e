"""vLLM's own cache groups, as the connector sees them on both sides (R1)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kv_planning import plan_preset

from connector.core.groups import Group, GroupKind, StateShape, TransferGroups, check_transferable
from connector.hybrid import HybridReadConnector
from connector.vllm_specs import layer_specs, transfer_groups
from sim.model.presets import PRESETS

FULL, WINDOW, RING, STATE = GroupKind.FULL, GroupKind.WINDOW, GroupKind.RING, GroupKind.STATE
KINDS = {
    "llama": [FULL],
    "deepseek-mla": [FULL],
    "gemma-swa": [WINDOW] * 5 + [FULL],
    "kimi-linear": [FULL] + [STATE] * 3,
    "qwen-hybrid": [FULL] + [STATE] * 3,
}


@pytest.mark.requirement("R1")
@pytest.mark.parametrize("model", list(PRESETS))
def test_both_halves_see_the_same_groups(model: str) -> None:
    """The worker looks through its wrappers; the scheduler has first layers only."""
    (worker, *_), scheduler, _layout = plan_preset(model)
    groups = transfer_groups(worker)
    assert transfer_groups(scheduler) == groups
    assert check_transferable(groups, "refuse") == []
    kinds = [group.kind for group in groups.on_wire]
    if model in KINDS:
        assert kinds == KINDS[model]
    assert set(layer_specs(worker)) == set(groups.payload_index_by_layer())


@pytest.mark.requirement("R1", "R13")
def test_glm_has_a_ring_beside_its_attention_and_its_states() -> None:
    """On the wire: latent and indexer layers, the ring, then the recurrent groups; each layer
    reads its own group's blocks."""
    (worker, *_), _scheduler, _layout = plan_preset("glm-flash-nospec")
    groups = transfer_groups(worker)
    first, second, *states = groups.on_wire
    assert (first.kind, second.kind) == (FULL, RING)
    assert states
    assert all(group.kind is STATE for group in states)
    index = groups.payload_index_by_layer()
    for layer, payload in index.items():
        if layer.endswith("tail_cache"):
            assert payload == 1
        elif layer.endswith((".attn", "k_cache")):
            assert payload == 0
        else:
            assert layer in groups.on_wire[payload].layers
            assert payload >= 2


@pytest.mark.requirement("R8")
@pytest.mark.parametrize(
    ("kinds", "is_one"),
    [
        ([FULL, STATE], True),
        ([FULL, RING, STATE, STATE], True),
        ([FULL, FULL, STATE], False),  # a drafter of another spec, say
        ([FULL, WINDOW, STATE], False),
    ],
)
def test_a_hit_without_states_counts_only_if_all_attention_has_it(
    kinds: list[GroupKind], is_one: bool
) -> None:
    """vLLM tells of the first attention group's hit alone. The blocks that another one has less of
    would be neither read nor zeroed, and be given to others as hits."""
    state = StateShape(((2, 4),), ("f32",), 16, 4096, 1)
    of_kind: dict[GroupKind, dict[str, Any]] = {STATE: {"state": state}, WINDOW: {"window": 32}}
    groups = (Group(k, (f"l{n}",), 16, **of_kind.get(k, {})) for n, k in enumerate(kinds))
    half: Any = SimpleNamespace(_groups=TransferGroups(tuple(groups)))
    told: Any = HybridReadConnector.supports_divergent_local_hybrid_hits
    assert told.fget(half) is is_one
