"""GLM-5.3-Flash at TP 8 with MTP and one draft: vLLM's own groups, from handing over to reading."""

from __future__ import annotations

from functools import cache

import pytest
from kv_planning import plan_preset

from connector.core.admission import span_of
from connector.core.groups import Group, GroupKind, TransferGroups, check_transferable
from connector.core.pairing import Plan, check_remote, first_positions, plan_read
from connector.core.payload import NULL_BLOCK, BlockLists, clip, decode, encode
from connector.core.zeroing import without_destinations
from connector.vllm_specs import transfer_groups
from sim.model.speculation import Speculation

BLOCK, RING = 640, 8
PROMPT = 1_501
"""Of which 1,500 tokens are the producer's."""
DRAFTER = "model.layers.45.self_attn"


@cache
def glm() -> TransferGroups:
    """As a worker of rank 0 sees them."""
    (worker, *_), _scheduler, _layout = plan_preset(
        "glm-flash", tp_size=8, geometry="real", speculation=Speculation("mtp", 1)
    )
    return transfer_groups(worker)


def of_kind(kind: GroupKind) -> list[Group]:
    return [group for group in glm().groups if group.kind is kind]


def blocks(first_id: int, computed: int, lookahead: int = 0) -> BlockLists:
    """What vLLM holds for ``computed`` tokens, one list for each group in transfer order."""
    lists = []
    for number, group in enumerate(glm().groups):
        ids = iter(range(first_id + 100 * number, first_id + 100 * (number + 1)))
        count = -(-computed // group.block_size)
        if group.kind is GroupKind.RING:
            lists.append([next(ids)])
        elif group.kind is GroupKind.STATE:
            running = [NULL_BLOCK] * (count - 1) + [next(ids)]
            lists.append(running + [next(ids) for _ in range(group.num_scratch)])
        else:
            lists.append([next(ids) for _ in range(count + lookahead)])
    return lists


def read(local: BlockLists, remote: BlockLists, hit: int, num_external: int) -> Plan:
    payload = decode(glm(), remote)
    firsts = first_positions(glm(), payload, PROMPT)
    span = span_of(PROMPT, hit, num_external)
    check_remote(glm(), payload, firsts, span)
    return plan_read(glm(), local, payload, firsts, span, "async")


@pytest.mark.requirement("R1", "R3", "R13")
def test_the_drafter_lands_in_the_groups_of_the_model() -> None:
    """Its latent cache and its indexer in the attention group, its tail in the ring's; so nothing
    about it is a warning."""
    assert [group.kind.name for group in glm().groups] == [*["STATE"] * 3, "FULL", "RING"]
    assert [len(group.layers) for group in glm().groups] == [12, 11, 11, 24, 12]
    index = glm().payload_index_by_layer()
    drafter = {layer: index[layer] for layer in index if layer.startswith(DRAFTER)}
    assert drafter == {
        f"{DRAFTER}.attn": 0,
        f"{DRAFTER}.indexer.k_cache": 0,
        f"{DRAFTER}.indexer.tail_cache": 1,
    }
    assert check_transferable(glm(), "refuse") == []


@pytest.mark.requirement("R1", "R7")
def test_the_tail_is_a_ring_of_one_block_and_a_state_has_one_scratch_slot() -> None:
    """The ring is handed over whole; of a state the running slot, wherever it lies."""
    (ring,) = of_kind(GroupKind.RING)
    assert ring.block_size == RING
    assert clip(ring, [7]) == [7]
    for state in of_kind(GroupKind.STATE):
        assert (state.num_scratch, state.block_size) == (1, BLOCK)
        assert clip(state, [0, 1, 2, 11]) == [2]
    (attention,) = of_kind(GroupKind.FULL)
    assert clip(attention, [3, 4, 5]) == [3, 4, 5]


@pytest.mark.requirement("R6", "R7")
def test_the_payload_of_1500_tokens() -> None:
    """Three blocks of attention, the ring, and one slot for each group of states."""
    assert encode(glm(), blocks(1000, PROMPT - 1)) == [
        [1300, 1301, 1302],
        [1400],
        [1000],
        [1100],
        [1200],
    ]


@pytest.mark.requirement("R8", "R12")
def test_1500_tokens_after_a_partial_hit_pair_every_group_and_leave_one_block_to_zero() -> None:
    """Of 640 cached tokens the block stays as it is; behind the read there is one block for what is
    decoded, and only that is zeroed, whatever else is new."""
    local = blocks(1, PROMPT - 1, lookahead=1)
    plan = read(local, encode(glm(), blocks(1000, PROMPT - 1)), hit=BLOCK, num_external=860)
    attention = local[3]
    assert tuple(map(tuple, plan.pairs)) == (
        ((attention[1], 1301), (attention[2], 1302)),
        ((local[4][0], 1400),),
        ((local[0][2], 1000),),
        ((local[1][2], 1100),),
        ((local[2][2], 1200),),
    )
    new = [*attention[1:], *local[4]]
    assert without_destinations(new, plan.destinations) == [attention[3]]


@pytest.mark.requirement("R8")
@pytest.mark.parametrize("lookahead", [0, 1, 2])
def test_blocks_behind_the_last_token_to_read_stay_unpaired(lookahead: int) -> None:
    """A prompt of two whole blocks and one token: its last one decodes into a block of its own."""
    prompt = 2 * BLOCK + 1
    local = blocks(1, prompt - 1, lookahead)
    remote = encode(glm(), blocks(1000, prompt - 1))
    payload = decode(glm(), remote)
    firsts = first_positions(glm(), payload, prompt)
    plan = plan_read(glm(), local, payload, firsts, span_of(prompt, 0, prompt - 1), "async")
    assert [ours for ours, _ in plan.pairs[0]] == local[3][:2]
