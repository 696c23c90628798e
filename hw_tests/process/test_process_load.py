"""A producer that goes away while several requests are under way, with every read verified.

Lengths are those of a trace's first requests, cut to what the caches here hold. Which requests have
been read when the producer goes is up to the machine; that each has ended well is not.
"""

from __future__ import annotations

import pytest

from hw_tests.process.checks import Written, check_found, check_serves, written_by
from hw_tests.process.pair import (
    LATE_S,
    EngineProcess,
    Engines,
    decode,
    prefill,
)

_LENGTHS = [300, 170, 60, 230, 120, 300, 90, 200]
_UNDER_WAY = 2
_VERIFIED = {"verify_reads": "all"}
_TIMEOUT_S = 4.0
_PATIENT = {"transfer_timeout": _TIMEOUT_S, "control_timeout": 0.5}
"""More than others have: on a busy machine, too, nothing fails before the producer is gone."""
_CAUSES = {
    "killed": ("no-answer", "not-confirmed", "no-session", "read-timed-out"),
    "stopped": ("no-answer", "not-confirmed"),
    "restarted": ("no-answer", "not-confirmed", "no-longer-held", "mismatch"),
}


def _load(producer: EngineProcess, consumer: EngineProcess) -> list[tuple[Written, str]]:
    """Prefills and decodes, one begun before the other has ended."""
    sent = []
    for number, length in enumerate(_LENGTHS):
        prefilled = prefill(producer, length)
        written = written_by(producer, prefilled)
        sent.append((written, decode(consumer, prefilled)))
        if number >= _UNDER_WAY:
            consumer.outcome(sent[number - _UNDER_WAY][1])
    return sent


def _check_ended(
    consumer: EngineProcess, written: Written, request_id: str, causes: tuple[str, ...] = ()
) -> bool:
    """Served with the producer's bytes, or failed, in time and unused, with one of ``causes`` in
    the log; whether it was served."""
    outcome = consumer.outcome(request_id)
    if outcome.reason == "length":
        check_found(written, consumer, request_id)
        return True
    assert (outcome.reason, outcome.num_tokens) == ("error", 0)
    assert consumer.snapshot().forwards[request_id] == 0
    (event,) = [one for one in consumer.events("load-failed") if one["request"] == request_id]
    assert event["cause"] in causes, event
    assert event["seconds"] < _TIMEOUT_S + LATE_S
    return False


def _away(engines: Engines, producer: EngineProcess, act: str) -> EngineProcess:
    """Whoever prefills after ``act``; a stopped producer goes on later."""
    if act == "stopped":
        producer.process.suspend()
        return producer
    producer.process.kill()
    ports = producer.ports if act == "restarted" else None
    return engines.start("llama", "kv_producer", ports=ports, **_VERIFIED)


@pytest.mark.requirement("R16", "R17")
@pytest.mark.soak
@pytest.mark.parametrize("act", sorted(_CAUSES))
def test_a_producer_that_goes_away_under_load_costs_its_requests_alone(
    engines: Engines, act: str
) -> None:
    """What was read is right, the rest fails; the consumer lives, its blocks come back,
    and it serves as many requests afterwards."""
    producer = engines.start("llama", "kv_producer", **_VERIFIED)
    consumer = engines.start("llama", "kv_consumer", **_PATIENT, **_VERIFIED)
    for written, request_id in _load(producer, consumer):
        assert _check_ended(consumer, written, request_id)
    held = [prefill(producer, length) for length in (200, 150)]
    sources = [written_by(producer, prefilled) for prefilled in held]
    sent = [decode(consumer, held[0])]
    after = _away(engines, producer, act)
    sent.append(decode(consumer, held[1]))
    served = [_check_ended(consumer, *one, _CAUSES[act]) for one in zip(sources, sent, strict=True)]
    if act != "restarted":
        assert not served[1], "read of a producer that was not there"
    if act == "stopped":
        producer.process.resume()
    consumer.wait_until_idle()
    after.wait_until_idle()
    check_serves(after, consumer)
    for written, request_id in _load(after, consumer):
        assert _check_ended(consumer, written, request_id)
    consumer.wait_until_idle()
