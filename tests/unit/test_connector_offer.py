"""Offers and the prompts that they are for, and what a refused one releases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils import length_from_prompt_token_ids_or_embeds
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.request import Request

from connector.consumer_scheduler import ConsumerScheduler
from connector.core.errors import ForeignOffer, MalformedPayload
from connector.core.groups import Group, GroupKind, TransferGroups
from connector.core.offer import EXTENSION_KEY, HoldId, Offer, make_extension, parse_offer
from connector.core.prompt import Feature, Prompt, prompt_of
from connector.counters import Counters
from connector.metadata import StepOrders
from connector.producer_scheduler import ProducerScheduler
from connector.prompts import prompt_of_request

GROUPS = TransferGroups((Group(GroupKind.FULL, ("attn",), 16),))
HOLD = HoldId("start-1", 7)
TOKENS = list(range(1000, 1112))
BLOCKS = [[11, 12, 13, 14, 15, 16, 17]]  # of 97 to 112 tokens


def offer_for(num_prompt: int, token_ids: list[int] | None) -> dict[str, Any]:
    """What a producer returns for a prompt."""
    prompt = prompt_of(num_prompt, token_ids)
    return {
        "do_remote_prefill": True,
        "remote_host": "10.0.0.1",
        "remote_handshake_port": 6301,
        "remote_notify_port": 61005,
        "tp_size": 1,
        "transfer_id": "tx-1",
        "remote_block_ids": BLOCKS,
        EXTENSION_KEY: make_extension(HOLD, BLOCKS, [0], 60.0, prompt, tp_size=1),
    }


def parse(params: dict[str, Any], tokens: list[int] | None, num_prompt: int = 100) -> Offer:
    return parse_offer(params, GROUPS, prompt=prompt_of(num_prompt, tokens), tp_size=1)


@pytest.mark.requirement("R10", "R14")
@pytest.mark.parametrize("num_tokens", [99, 101, 112])
def test_an_offer_for_a_prompt_of_another_length_is_refused(num_tokens: int) -> None:
    """Though it has all the blocks that the longer one needs."""
    with pytest.raises(MalformedPayload, match=f"has 100 tokens, the one here {num_tokens};"):
        parse(offer_for(100, TOKENS[:100]), TOKENS[:num_tokens], num_tokens)


@pytest.mark.requirement("R10", "R14")
@pytest.mark.parametrize("at", [0, 50, 98])
def test_an_offer_for_other_tokens_is_refused(at: int) -> None:
    """Anywhere among those whose cache is read."""
    other = TOKENS[:100]
    other[at] += 1
    with pytest.raises(MalformedPayload, match="has other tokens or media"):
        parse(offer_for(100, TOKENS[:100]), other)


@pytest.mark.parametrize("kept", [99, 100])
def test_the_last_token_may_differ_or_be_dropped(kept: int) -> None:
    """The consumer computes it."""
    assert parse(offer_for(100, TOKENS[:kept]), [*TOKENS[:99], 7]).hold == HOLD


def test_the_digest_covers_the_prompt() -> None:
    """So what was made for another can not be passed off as ours."""
    ours = prompt_of(112, TOKENS)
    params = offer_for(100, TOKENS[:100])
    params[EXTENSION_KEY].update(prompt_tokens=ours.num_tokens, prompt_digest=ours.digest)
    with pytest.raises(MalformedPayload, match="digest differs"):
        parse(params, TOKENS, 112)


@pytest.mark.parametrize("key", ["digest", "first_positions"])
def test_an_offer_that_is_mixed_of_two_is_foreign_if_its_hold_is(key: str) -> None:
    """The hold is another request's, which may be reading from it."""
    params = offer_for(100, TOKENS[:100])
    params[EXTENSION_KEY][key] = None
    with pytest.raises(ForeignOffer):
        parse(params, TOKENS, 112)


def refused(params: dict[str, Any]) -> StepOrders:
    """The orders of a request whose offer is refused."""
    scheduler = ConsumerScheduler(GROUPS, "async", 1, Counters(), tuple)
    asked: Any = SimpleNamespace(
        request_id="req-d0",
        num_prompt_tokens=112,
        prompt_token_ids=TOKENS,
        mm_features=[],
        lora_request=None,
        prompt_embeds=None,
        kv_transfer_params=params,
    )
    assert scheduler.get_num_new_matched_tokens(asked, 0) == (111, True)
    scheduler.update_state_after_alloc(asked, [[1, 2, 3, 4, 5, 6, 7]], 111)
    output: Any = SimpleNamespace(scheduled_new_reqs=[], new_block_ids_to_zero=None)
    orders = scheduler.build_orders(output)
    assert (list(orders.loads), list(orders.refused)) == ([], ["req-d0"])
    return orders


@pytest.mark.requirement("R10")
@pytest.mark.parametrize("change", [{"remote_block_ids": [[11]]}, {"remote_block_ids": None}])
def test_a_refused_offer_is_released_by_its_hold(change: dict[str, Any]) -> None:
    """By its transfer id alone a retry of the same prefill might be released instead."""
    orders = refused({**offer_for(112, TOKENS), **change})
    assert [release.share.hold for release in orders.releases] == [HOLD]


@pytest.mark.requirement("R10", "R17")
def test_an_offer_of_another_prompt_releases_nobody() -> None:
    """The hold that it names is another request's, which may still be reading."""
    assert refused(offer_for(111, TOKENS[:111])).releases == []
    assert refused(offer_for(112, [token + 1 for token in TOKENS[:112]])).releases == []


@pytest.mark.requirement("R10", "R17")
@pytest.mark.parametrize(
    "change", [{"lease_s": None}, {"lease_s": "60"}, {"incarnation": 7}, {"hold": None}]
)
def test_an_offer_of_another_prompt_releases_nobody_though_more_is_wrong(
    change: dict[str, Any],
) -> None:
    """By its transfer id its holder would be released, too."""
    params = offer_for(111, TOKENS[:111])
    params[EXTENSION_KEY].update(change)
    assert refused(params).releases == []


@pytest.mark.requirement("R10", "R16")
@pytest.mark.parametrize(
    "lease_s",
    [1e11, 10**400, float("inf"), float("nan"), 0, True, "60"],
    ids=lambda lease_s: str(lease_s)[:9],
)
def test_a_lease_that_nobody_can_wait_for_is_refused(lease_s: Any) -> None:
    """By its name, with what is accepted; its hold is released."""
    params = offer_for(112, TOKENS)
    params[EXTENSION_KEY]["lease_s"] = lease_s
    with pytest.raises(MalformedPayload, match=r"^lease_s is .*seconds above 0, at most 1000000$"):
        parse(params, TOKENS, 112)
    (release,) = refused(params).releases
    assert release.share.hold == HOLD


@pytest.mark.requirement("R10")
@pytest.mark.parametrize("change", [{"version": 99}, {"hold": None}, {"hold": 2**70}])
def test_an_offer_without_a_readable_hold_is_released_by_its_transfer(
    change: dict[str, Any],
) -> None:
    params = offer_for(112, TOKENS)
    params[EXTENSION_KEY].update(change)
    (release,) = refused(params).releases
    assert (release.share.transfer_id, release.share.hold) == ("tx-1", None)


@pytest.mark.requirement("R14", "S2")
@pytest.mark.parametrize("change", [{"hold": HOLD.number + 1}, {"incarnation": "another"}])
def test_an_offer_with_the_name_of_another_hold_is_refused(change: dict[str, Any]) -> None:
    """The producer would confirm the other one, and digests are asked for by the offer's blocks."""
    params = offer_for(112, TOKENS)
    params[EXTENSION_KEY].update(change)
    with pytest.raises(MalformedPayload, match="not the one that the producer made"):
        parse(params, TOKENS, 112)


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(
    ("key", "number", "released"),
    [
        ("remote_block_ids", [[2**70]], [HOLD]),
        ("first_positions", [2**70], [HOLD]),
        ("prompt_tokens", 2**70, []),  # another prompt's, for all that can be seen
    ],
)
def test_a_number_of_any_size_is_refused(key: str, number: Any, released: list[HoldId]) -> None:
    """It is not an error of the program."""
    params = offer_for(112, TOKENS)
    (params if key in params else params[EXTENSION_KEY])[key] = number
    assert [release.share.hold for release in refused(params).releases] == released


FEATURE = Feature("lora:abc", 3, 20)
NAMED = {"features": [FEATURE], "adapter": "sql"}


@pytest.mark.requirement("R10", "R14")
@pytest.mark.parametrize("tokens", [TOKENS[:100], None])
@pytest.mark.parametrize(
    "change",
    [
        {"features": []},
        {"features": [FEATURE._replace(identifier="abd")]},
        {"features": [FEATURE._replace(offset=4)]},
        {"features": [FEATURE._replace(length=21)]},
        {"features": [FEATURE, FEATURE._replace(offset=40)]},
        {"adapter": None},
        {"adapter": "sum"},
    ],
    ids=repr,
)
def test_an_offer_for_other_media_or_another_adapter_is_refused(
    change: dict[str, Any], tokens: list[int] | None
) -> None:
    """Tokens that stand for an image are the same for all images."""
    theirs: Any = prompt_of(100, tokens, **NAMED)  # type: ignore[arg-type]
    ours: Any = prompt_of(100, tokens, **{**NAMED, **change})  # type: ignore[arg-type]
    params = {**offer_for(100, tokens), EXTENSION_KEY: made(theirs)}
    assert parse_offer(params, GROUPS, prompt=theirs, tp_size=1).hold == HOLD
    with pytest.raises(MalformedPayload, match="other tokens or media, or another LoRA adapter"):
        parse_offer(params, GROUPS, prompt=ours, tp_size=1)


@pytest.mark.requirement("R14", "R15")
@pytest.mark.parametrize("change", [{"tp_size": 2}, {"remote_tp_size": 4}])
def test_another_number_of_ranks_than_the_producer_has_is_refused(change: dict[str, Any]) -> None:
    """By it a rank would read other heads than its own, of the same shape."""
    params = {**offer_for(100, TOKENS[:100]), **change}
    with pytest.raises(MalformedPayload, match=r"has 1 tensor-parallel ranks, .* say [24]; "):
        parse(params, TOKENS[:100])


def made(prompt: Prompt) -> dict[str, Any]:
    return make_extension(HOLD, BLOCKS, [0], 60.0, prompt, tp_size=1)


@pytest.mark.parametrize("prefix", ["", "lora:"])
def test_media_that_vllm_only_counts_are_told_apart_by_place(prefix: str) -> None:
    """Without its caches it hashes nothing; what each engine counts for itself is no identity."""
    names = [f"{prefix}renderer0-mm-{count}-image-0" for count in (7, 9)]
    prompts = [prompt_of(100, TOKENS, [FEATURE._replace(identifier=name)]) for name in names]
    assert prompts[0] == prompts[1]
    assert prompts[0] != prompt_of(100, TOKENS, [Feature(names[0], 4, 20)])


def test_the_prompt_of_a_request_is_named_by_what_vllm_knows_of_it() -> None:
    """On the producer, which drops the last token, and on the consumer."""
    position = PlaceholderRange(offset=3, length=20)
    feature = MultiModalFeatureSpec(None, "image", "lora:abc", position, mm_hash="abc")
    request = Request(
        "r",
        TOKENS[:100],
        SamplingParams(max_tokens=1),
        None,
        mm_features=[feature],
        lora_request=LoRARequest("sql", 1, "/adapters/sql"),
    )
    expected = prompt_of(100, TOKENS[:100], [FEATURE], "sql")
    assert prompt_of_request(request, 100) == expected
    assert request.prompt_token_ids is not None
    request.prompt_token_ids.pop()
    assert prompt_of_request(request, 100) == expected


@pytest.mark.requirement("R10", "R14")
@pytest.mark.parametrize("with_tokens", [True, False])
def test_prompts_of_embeddings_are_told_apart_by_their_values(with_tokens: bool) -> None:
    """All but the last row, which the consumer computes from."""

    def name(row: int | None = None) -> Prompt:
        embeds = torch.zeros(100, 8)
        if row is not None:
            embeds[row, 3] = 1.0
        request = Request(
            "r",
            TOKENS[:100] if with_tokens else None,
            SamplingParams(max_tokens=1),
            None,
            prompt_embeds=embeds,
            prompt_is_token_ids=[False] * 100 if with_tokens else None,
        )
        return prompt_of_request(request, 100)

    assert name() == name(99)
    assert name() not in (name(0), name(98), prompt_of(100, TOKENS[:100]))


@pytest.mark.requirement("R11")
@pytest.mark.parametrize("parts", ["tokens", "embeddings", "both"])
def test_a_producer_drops_the_last_token_from_all_that_a_prompt_consists_of(parts: str) -> None:
    """Or vLLM's worker ends its engine over a prompt of two lengths. Once, and not of one token."""
    groups = TransferGroups((*GROUPS.groups, Group(GroupKind.WINDOW, ("near",), 16, window=64)))
    scheduler = ProducerScheduler(groups, 60.0, {"tp_size": 1}, Counters())
    for length in (5, 1):
        params = {"do_remote_decode": True}
        request = Request(
            "r",
            None if parts == "embeddings" else TOKENS[:length],
            SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": params}),
            None,
            prompt_embeds=None if parts == "tokens" else torch.zeros(length, 8),
            prompt_is_token_ids=[False] * length if parts == "both" else None,
        )
        scheduler.on_new_request(request)
        scheduler.on_new_request(request)
        kept = max(length - 1, 1)
        new = NewRequestData.from_request(request, ([1], [2]))
        length_there = length_from_prompt_token_ids_or_embeds(
            new.prompt_token_ids, new.prompt_embeds
        )
        assert length_there == request.num_prompt_tokens == request.num_tokens == kept
        assert new.prompt_is_token_ids in (None, [False] * kept)
