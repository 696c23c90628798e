"""What `require_safe_reads` and `verify_reads` do together, by what the producer can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from faults.running import run
from faults.schedule import with_faults
from sim.outcome import Outcome
from sim.probes import Probe
from sim.request_ids import logical_id
from sim.run import rehearse
from sim.scenario import Scenario, UniformWorkload, with_settings
from tests.connector_events import Events, logged

NUM_REQUESTS = 3
SCENARIO = Scenario(
    connector="hybrid",
    workload=UniformWorkload(
        requests=NUM_REQUESTS, prompt_tokens=(60, 90), output_tokens=(3, 3), interval_ms=50.0
    ),
    extra_config={"defer_timeout": 3, "transfer_timeout": 2},
    quiet_phase_s=5.0,
)
COMBINATIONS = pytest.mark.parametrize(
    ("requires", "verifies"), [(False, False), (False, True), (True, False), (True, True)]
)


@pytest.fixture
def events() -> Iterator[Events]:
    """Everything that connectors log, from debug on."""
    with logged() as heard:
        yield heard


def serve(
    events: Events,
    requires: bool,
    verifies: bool,
    producer: str = "hybrid",
    faults: tuple[str, ...] = (),
    probe: Probe | None = None,
) -> Outcome:
    of_consumer: dict[str, Any] = {
        "require_safe_reads": requires,
        "verify_reads": "all" if verifies else "off",
    }
    scenario = with_settings(
        SCENARIO,
        {
            "kv_load_failure_policy": "recompute",
            "topology.producer_connector": producer,
            **{f"extra_config.{key}": str(value).lower() for key, value in of_consumer.items()},
        },
    )
    rehearse(scenario)
    events.clear()
    return run(with_faults(scenario, list(faults)), probe=probe).result.outcome


def warnings(events: Events) -> Counter[str]:
    """What is said of a peer, by event."""
    return Counter(e["event"] for e in events if e["event"].startswith("peer-un"))


def failures(events: Events) -> list[tuple[str, str]]:
    """Cause and reason of everything that was not loaded."""
    names = ("load-failed", "offer-refused")
    return [(e["cause"], e["reason"]) for e in events if e["event"] in names and _is_load(e)]


def verified(events: Events) -> list[bool]:
    """Of each load in place, whether it was verified."""
    return [e["verified"] for e in events if e["event"] == "loaded" and _is_load(e)]


def _is_load(event: dict[str, Any]) -> bool:
    """Of a request of the workload; the one that ends a run is spared by faults."""
    return logical_id(event["request"]).startswith("req-")


@pytest.mark.requirement("S3", "S8")
@COMBINATIONS
def test_a_safe_peer_is_read_from(requires: bool, verifies: bool, events: Events) -> None:
    """Verified if that is wanted; there is nothing to warn of."""
    outcome = serve(events, requires, verifies)
    assert outcome.violations == []
    assert failures(events) == []
    assert warnings(events) == {}
    assert verified(events) == [verifies] * NUM_REQUESTS


@pytest.mark.requirement("S7", "S8")
@COMBINATIONS
def test_upstreams_peer_is_read_from_unless_safe_reads_are_required(
    requires: bool, verifies: bool, events: Events
) -> None:
    """Which is said once of the peer, for each thing that it cannot do. A peer that is refused
    costs no answer where loads that failed are recomputed."""
    outcome = serve(events, requires, verifies, producer="moriio")
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    if not requires:
        assert verified(events) == [False] * NUM_REQUESTS
        assert failures(events) == []
        unable = ["peer-unprotected", "peer-unverified"] if verifies else ["peer-unprotected"]
        assert warnings(events) == dict.fromkeys(unable, 1)
        return
    assert verified(events) == []
    assert warnings(events) == {}
    whats = {
        False: "cannot confirm that it holds blocks while they are read, and require_safe_reads",
        True: "cannot tell digests of what it holds, and both verify_reads and require_safe_reads",
    }
    assert len(failures(events)) == NUM_REQUESTS
    for cause, reason in failures(events):
        assert cause == "mismatch"
        assert whats[verifies] in reason


# ------------------------------------------------------------ another protocol version


class OldProducer(Probe):
    """Has the producer speak version 1: its offers and welcomes say so, and it understands no
    other. Each process has modules of its own, so the consumer goes on to speak 3."""

    def engine_started(self, engine: Any) -> None:
        if engine.name != "p0":
            return
        scheduler = engine.loop.scheduler.connector._producer
        make_extension = type(scheduler).__init__.__globals__["make_extension"]
        (worker,) = engine.workers
        rank = worker.runner.hooks._kv_connector.kv_connector._worker
        encode_welcome = type(rank).__init__.__globals__["encode_welcome"]
        for function in (make_extension, encode_welcome):
            assert function.__globals__["PROTOCOL_VERSION"] == 3
            function.__globals__["PROTOCOL_VERSION"] = 1


@pytest.mark.requirement("R15", "S7")
@COMBINATIONS
@pytest.mark.parametrize(
    ("faults", "cause", "reason"),
    [
        ((), "bad-offer", "hybrid.version is 1; this connector speaks 3; run the same connector"),
        (
            ("key-stripped:count=null",),
            "mismatch",
            "the peer speaks version 1 of the transfer protocol and this engine 3; run the same",
        ),
    ],
    ids=["by its offer", "by its welcome"],
)
def test_a_peer_of_another_version_is_not_read_from(
    faults: tuple[str, ...],
    cause: str,
    reason: str,
    requires: bool,
    verifies: bool,
    events: Events,
) -> None:
    """Nor taken for upstream's. It is released all the same, and the request is recomputed."""
    outcome = serve(events, requires, verifies, faults=faults, probe=OldProducer())
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    assert verified(events) == []
    assert warnings(events) == {}
    assert len(failures(events)) == NUM_REQUESTS
    for found, why in failures(events):
        assert found == cause
        assert reason in why
    assert "hold-expired" not in {event["event"] for event in events}
