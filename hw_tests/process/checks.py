"""What must be true after a load that succeeded, and after one that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from hw_tests.process.launcher import until
from hw_tests.process.messages import Digests
from hw_tests.process.pair import (
    LATE_S,
    TRANSFER_TIMEOUT_S,
    EngineProcess,
    Prefilled,
    decode,
    prefill,
)

EACH_MODE = pytest.mark.parametrize(
    "load_mode", ["async", pytest.param("sync", marks=pytest.mark.soak)]
)
"""A test without a read that is held: while a step waits for one, its engine takes no command."""
_TRIES = 5


def check_served(consumer: EngineProcess, request_id: str) -> None:
    """The request has all its tokens."""
    outcome = consumer.outcome(request_id)
    assert (outcome.reason, outcome.num_tokens) == ("length", 2), consumer.events("load-failed")


def check_loaded(
    producer: EngineProcess, prefilled: Prefilled, consumer: EngineProcess, request_id: str
) -> None:
    """The first forward pass found, in every layer and block, what the producer had written."""
    check_found(written_by(producer, prefilled), consumer, request_id)


class Written(NamedTuple):
    """What a producer has written for a request, for when it is no longer there to be asked."""

    prefilled: Prefilled
    blocks: list[list[int]]
    digests: Digests


def written_by(producer: EngineProcess, prefilled: Prefilled) -> Written:
    """Of a request that it has prefilled."""
    name = prefilled.request_id
    blocks, digests = (producer.call(what, request_id=name) for what in ("blocks", "found"))
    return Written(prefilled, blocks, digests)


def check_found(written: Written, consumer: EngineProcess, request_id: str) -> None:
    """As `check_loaded`."""
    prefilled, sources = written.prefilled, written.blocks
    targets = consumer.call("blocks", request_id=request_id)
    found: Digests = consumer.call("found", request_id=request_id)
    offered = {block for ids in prefilled.params["remote_block_ids"] for block in ids if block}
    pairs = {
        (source, target)
        for theirs, ours in zip(sources, targets, strict=True)
        for source, target in zip(theirs, ours, strict=False)
        if source in offered and target
    }
    assert {source for source, _ in pairs} == offered
    for source, target in sorted(pairs):
        for layer, by_block in written.digests.items():
            if source in by_block:
                assert found[layer][target] == by_block[source], (layer, source, target)


def check_untouched(before: Digests, after: Digests, own: Sequence[Sequence[int]]) -> None:
    """No block but the request's own has other bytes than before, in any layer."""
    mine = {block for ids in own for block in ids}
    changed = {
        block
        for layer, by_block in before.items()
        for block, digest in by_block.items()
        if after[layer][block] != digest
    }
    assert changed <= mine, f"blocks of nobody or of others were written: {sorted(changed - mine)}"


def check_failed(consumer: EngineProcess, request_id: str, *causes: str) -> str:
    """The request, and no other, ended with an error, in time and unused; returns the reason.

    Its client is told so, the log names the cause, no forward pass has run on it, and its blocks
    are free again. Of a load that its step waits for vLLM hears with the step's end, so one pass
    has run, whose token is dropped.
    """
    outcome = consumer.outcome(request_id)
    assert (outcome.reason, outcome.num_tokens) == ("error", 0)
    event = check_told(consumer, request_id, *causes)
    waits = event["event"] == "load-failed" and consumer.loads_in_step
    assert consumer.snapshot().forwards[request_id] == (1 if waits else 0)
    consumer.wait_until_idle()
    return str(event["reason"])


def check_told(consumer: EngineProcess, request_id: str, *causes: str) -> dict[str, Any]:
    """The log has one failure of the request, with one of the causes, in time; the engine may be
    dead."""
    events = [*consumer.events("load-failed"), *consumer.events("offer-refused")]
    (event,) = [event for event in events if event["request"] == request_id]
    assert event["cause"] in causes, event
    assert event.get("seconds", 0) < TRANSFER_TIMEOUT_S + LATE_S
    return event


def check_serves(producer: EngineProcess, consumer: EngineProcess) -> None:
    """The two serve a new request, and free its blocks; on a busy machine not always the first."""
    for _ in range(_TRIES):
        prefilled = prefill(producer)
        request_id = decode(consumer, prefilled)
        if consumer.outcome(request_id).reason == "length":
            break
    check_served(consumer, request_id)
    check_loaded(producer, prefilled, consumer, request_id)
    consumer.wait_until_idle()
    producer.wait_until_idle()


def wait_for_read(consumer: EngineProcess) -> None:
    """Until a read has begun and is kept under way."""
    until(lambda: consumer.snapshot().reads_at_gate, "a read is under way")
