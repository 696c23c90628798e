"""Producers that die, stop, restart and lose their memory, as the consumer's clients see it."""

from __future__ import annotations

import time

import pytest

from hw_tests.process.checks import (
    EACH_MODE,
    check_failed,
    check_loaded,
    check_served,
    check_serves,
    check_untouched,
    wait_for_read,
)
from hw_tests.process.launcher import until
from hw_tests.process.pair import LEASE_S, EngineProcess, Engines, Prefilled, decode, prefill

GIVEN_UP = "the first reads were given up"
"""The connector reads once more, and says of both attempts why they failed."""
_MOST_PROMPTS = 8


@pytest.mark.requirement("R8", "R13", "R14")
@pytest.mark.parametrize("model", ["llama", "glm-flash"])
def test_a_read_fills_its_own_blocks_with_the_producers_bytes(engines: Engines, model: str) -> None:
    """All layers of all groups, and nobody else's blocks."""
    producer, consumer = engines.producer(model), engines.consumer(model)
    before = consumer.call("digests")
    prefilled = prefill(producer)
    request_id = decode(consumer, prefilled)
    check_served(consumer, request_id)
    check_loaded(producer, prefilled, consumer, request_id)
    own = consumer.call("blocks", request_id=request_id)
    check_untouched(before, consumer.call("digests"), own)
    consumer.wait_until_idle()
    producer.wait_until_idle()


@pytest.mark.requirement("R16", "S6")
@EACH_MODE
@pytest.mark.parametrize("knows", [False, True], ids=["unknown", "known"])
def test_a_producer_killed_before_the_read_costs_its_request(
    engines: Engines, consumer: EngineProcess, knows: bool
) -> None:
    """Nobody answers the handshake, be it before the read or after one that failed."""
    producer = engines.start("llama", "kv_producer")
    if knows:
        check_serves(producer, consumer)
    prefilled = prefill(producer)
    producer.process.kill()
    request_id = decode(consumer, prefilled)
    reason = check_failed(consumer, request_id, "no-answer")
    assert (GIVEN_UP in reason) == knows
    check_serves(engines.producer(), consumer)


@pytest.mark.requirement("R16", "S5")
@pytest.mark.usefixtures("held_reads")
def test_a_producer_killed_during_the_read_costs_its_request(
    engines: Engines, consumer: EngineProcess
) -> None:
    """Some bytes have landed, none is used; the next read has other queue pairs."""
    producer = engines.start("llama", "kv_producer")
    renewed = consumer.snapshot().counters["renewed_connections"]
    request_id = decode(consumer, prefill(producer))
    wait_for_read(consumer)
    producer.process.kill()
    assert GIVEN_UP in check_failed(consumer, request_id, "no-answer")
    assert consumer.snapshot().counters["renewed_connections"] == renewed + 1
    consumer.call("set_gate", is_open=True)
    check_serves(engines.producer(), consumer)


@pytest.mark.requirement("R16", "R17")
@EACH_MODE
def test_memory_that_is_deregistered_costs_the_request_that_reads_it(
    engines: Engines, consumer: EngineProcess
) -> None:
    """The read is refused by the card; the producer lives and gets its blocks back."""
    producer = engines.start("llama", "kv_producer")
    check_serves(producer, consumer)
    prefilled = prefill(producer)
    producer.call("deregister_memory")
    request_id = decode(consumer, prefilled)
    assert GIVEN_UP in check_failed(consumer, request_id, "no-session")
    producer.wait_until_idle()
    check_serves(engines.producer(), consumer)


@pytest.mark.requirement("R16")
@pytest.mark.usefixtures("held_reads")
def test_memory_that_is_deregistered_during_the_read_costs_its_request(
    engines: Engines, consumer: EngineProcess
) -> None:
    """As with the card's own check of every request."""
    producer = engines.start("llama", "kv_producer")
    request_id = decode(consumer, prefill(producer))
    wait_for_read(consumer)
    producer.call("deregister_memory")
    consumer.call("set_gate", is_open=True)
    assert GIVEN_UP in check_failed(consumer, request_id, "no-session")
    producer.wait_until_idle()


@pytest.mark.requirement("S3", "S6")
@EACH_MODE
def test_a_stopped_producer_confirms_nothing(engines: Engines, consumer: EngineProcess) -> None:
    """Its memory can be read, but nobody says that it was held; it gets its blocks back."""
    producer = engines.start("llama", "kv_producer")
    check_serves(producer, consumer)
    prefilled = prefill(producer)
    producer.process.suspend()
    request_id = decode(consumer, prefilled)
    check_failed(consumer, request_id, "not-confirmed")
    producer.process.resume()
    producer.wait_until_idle()
    check_serves(producer, consumer)


@pytest.mark.requirement("S1", "S3")
@EACH_MODE
def test_a_lease_that_ran_out_while_the_producer_was_stopped_is_over(
    engines: Engines, consumer: EngineProcess
) -> None:
    """The producer's first step after the pause lets go, and it says so."""
    producer = engines.start("llama", "kv_producer", defer_timeout=LEASE_S)
    check_serves(producer, consumer)
    prefilled = prefill(producer)
    producer.process.suspend()
    begin = time.monotonic()
    until(lambda: time.monotonic() > begin + LEASE_S, "the lease runs out")
    producer.process.resume()
    producer.wait_until_idle()
    assert producer.events("hold-expired")
    request_id = decode(consumer, prefilled)
    check_failed(consumer, request_id, "no-longer-held")


@pytest.mark.requirement("S2", "S3")
@pytest.mark.usefixtures("held_reads")
def test_a_consumer_stopped_past_the_lease_uses_nothing_that_it_read(
    engines: Engines, consumer: EngineProcess
) -> None:
    """All its reads succeed, of blocks that are somebody else's by then."""
    producer = engines.start("llama", "kv_producer", defer_timeout=LEASE_S)
    prefilled = prefill(producer)
    request_id = decode(consumer, prefilled)
    wait_for_read(consumer)
    consumer.process.suspend()
    producer.wait_until_idle()
    assert producer.events("hold-expired")
    _overwrite(producer, prefilled)
    consumer.process.resume()
    consumer.call("set_gate", is_open=True)
    check_failed(consumer, request_id, "no-longer-held", "read-timed-out")
    check_serves(engines.producer(), consumer)


@pytest.mark.requirement("S2", "R17")
@pytest.mark.usefixtures("held_reads")
def test_a_consumer_killed_during_the_read_gives_the_producer_its_blocks_back(
    engines: Engines, consumer: EngineProcess
) -> None:
    """Nobody renews the lease any more; the producer serves others."""
    producer = engines.start("llama", "kv_producer", defer_timeout=LEASE_S)
    decode(consumer, prefill(producer))
    wait_for_read(consumer)
    consumer.process.kill()
    producer.wait_until_idle()
    assert producer.events("hold-expired")
    check_serves(producer, engines.consumer())


@pytest.mark.requirement("S4")
@EACH_MODE
@pytest.mark.parametrize("knows", [False, True], ids=["unknown", "known"])
def test_a_producer_that_started_again_on_its_address_is_another(
    engines: Engines, consumer: EngineProcess, knows: bool
) -> None:
    """What the first has offered is not read from the second, whose own holds stay."""
    first = engines.start("llama", "kv_producer")
    if knows:
        check_serves(first, consumer)
    old = prefill(first)
    first.process.kill()
    second = engines.start("llama", "kv_producer", ports=first.ports)
    held = prefill(second)
    request_id = decode(consumer, old)
    reason = check_failed(consumer, request_id, "mismatch")
    assert "it has started again" in reason
    assert (GIVEN_UP in reason) == knows
    assert second.snapshot().free_blocks < second.idle_blocks
    request_id = decode(consumer, held)
    check_served(consumer, request_id)
    check_loaded(second, held, consumer, request_id)
    second.wait_until_idle()


def _overwrite(producer: EngineProcess, freed: Prefilled) -> None:
    """Prefill other prompts until one of them has blocks that ``freed`` had."""
    blocks = {block for ids in freed.params["remote_block_ids"] for block in ids}
    for _ in range(_MOST_PROMPTS):
        others = producer.call("blocks", request_id=prefill(producer).request_id)
        if any(blocks.intersection(ids) for ids in others):
            return
        producer.wait_until_idle()
    raise AssertionError(f"none of {_MOST_PROMPTS} prompts got blocks of {sorted(blocks)}")
