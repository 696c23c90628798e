"""Producers that are not what the consumer takes them for; and loads that the step waits for."""

from __future__ import annotations

from typing import Any

import pytest

from hw_tests.process.checks import (
    EACH_MODE,
    check_failed,
    check_served,
    check_serves,
    check_told,
)
from hw_tests.process.pair import EngineProcess, Engines, decode, prefill


@pytest.mark.requirement("R10", "R15")
@EACH_MODE
@pytest.mark.parametrize(
    ("changes", "cause", "said"),
    [
        ({"model": "deepseek-mla", "block_size": 16}, "mismatch", "has other caches than this"),
        ({"block_size": 8}, "mismatch", "has other caches than this"),
        ({"block_size": 32}, "bad-offer", "the producer has no block at position 10"),
    ],
    ids=["model", "smaller-blocks", "larger-blocks"],
)
def test_a_producer_with_other_caches_is_not_read_from(
    engines: Engines, consumer: EngineProcess, changes: dict[str, Any], cause: str, said: str
) -> None:
    """Refused by its offer or in the handshake; nothing is read, and both sides live."""
    producer = engines.producer(**changes)
    reads = consumer.snapshot().counters["reads"]
    request_id = decode(consumer, prefill(producer))
    assert said in check_failed(consumer, request_id, cause)
    assert consumer.snapshot().counters["reads"] == reads
    producer.wait_until_idle()
    check_serves(engines.producer(), consumer)


@pytest.mark.requirement("R6", "R10")
@EACH_MODE
def test_a_producer_that_speaks_another_version_is_refused(
    engines: Engines, consumer: EngineProcess
) -> None:
    """Its offer cannot be understood, so it is neither read nor taken for an old one."""
    producer = engines.start("llama", "kv_producer", protocol_version=99)
    request_id = decode(consumer, prefill(producer))
    reason = check_failed(consumer, request_id, "bad-offer")
    assert "version is 99" in reason
    producer.wait_until_idle()


@pytest.mark.requirement("R16")
def test_one_group_that_the_step_waits_for_costs_its_request(engines: Engines) -> None:
    """A synchronous load that fails is reported by blocks, with its cause and in time, and the
    engine lives."""
    consumer = engines.consumer(load_mode="sync")
    producer = engines.start("llama", "kv_producer")
    check_serves(producer, consumer)
    prefilled = prefill(producer)
    producer.process.kill()
    request_id = decode(consumer, prefilled)
    check_failed(consumer, request_id, "no-answer")
    check_serves(engines.producer(), consumer)


@pytest.mark.requirement("R16")
def test_several_groups_that_the_step_waits_for_end_the_engine(engines: Engines) -> None:
    """VLLM has no other way, and the log of the start said so; the cause is told in time."""
    consumer = engines.start("glm-flash", "kv_consumer", load_mode="sync")
    assert consumer.events("sync-loads-fail-the-step")
    producer = engines.producer("glm-flash")
    first = decode(consumer, prefill(producer))
    check_served(consumer, first)
    producer.wait_until_idle()
    mortal = engines.start("glm-flash", "kv_producer")
    prefilled = prefill(mortal)
    mortal.process.kill()
    request_id = decode(consumer, prefilled)
    assert consumer.process.exit_code() == 1
    check_told(consumer, request_id, "no-answer")
    log = consumer.process.log.read_text()
    assert f"LoadFailed: the synchronous load of {request_id} failed" in log
