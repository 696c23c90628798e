"""Verified reads: bytes that are not the producer's never count, and those that are always do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from variants import alone, conversations, edges

from faults.running import run
from faults.schedule import parse
from sim.guest.facades import checksums
from sim.model.presets import PRESETS
from sim.outcome import Outcome
from sim.scenario import Scenario, UniformWorkload, Workload, with_settings
from sim.units import MS
from tests.connector_events import Events, logged

VERIFIED = {
    "connector": "hybrid",
    "extra_config": "{verify_reads: all, defer_timeout: 3, transfer_timeout: 4}",
    "kv_load_failure_policy": "fail",
    "quiet_phase_s": "60",
}
OFF = {"extra_config.verify_reads": "off"}
TWO_RANKS = {"tp_size": "2", "executor": "multi-process"}
MTP = {"speculation.method": "mtp"}
DISHONEST = ("corrupt-bytes:bits=1", "early-completion:by_ms=30")
"""After these the library says that bytes are in place, and they are not."""


@pytest.fixture
def events() -> Iterator[Events]:
    """Everything that connectors log, from debug on."""
    with logged() as heard:
        yield heard


def serve(
    model: str, workload: Workload, settings: dict[str, str], fault: str | None = None
) -> Outcome:
    scenario = with_settings(Scenario(model=model, workload=workload), VERIFIED | settings)
    faults: list[Any] = [] if fault is None else [msgspec.to_builtins(parse(fault))]
    return run(msgspec.structs.replace(scenario, faults=faults)).result.outcome


def failures(events: Events) -> Counter[str]:
    """Failed loads by cause."""
    return Counter(event["cause"] for event in events if event["event"] == "load-failed")


# ------------------------------------------------------------------ bytes that differ


def _dishonest(model: str, settings: dict[str, str] | None = None) -> list[Any]:
    return [pytest.param(model, settings or {}, fault) for fault in DISHONEST]


@pytest.mark.requirement("S8", "R16", "S5")
@pytest.mark.parametrize(
    ("model", "settings", "fault"),
    [
        *_dishonest("llama"),
        *_dishonest("llama", TWO_RANKS),
        *_dishonest("glm-flash", MTP | TWO_RANKS),
        *_dishonest("kimi-linear", {"kv_load_failure_policy": "recompute"}),
        *(_dishonest(model)[0] for model in PRESETS if model != "llama"),
        *(
            pytest.param(*_dishonest(model)[1].values, marks=pytest.mark.soak)
            for model in PRESETS
            if model != "llama"
        ),
    ],
    ids=str,
)
def test_bytes_that_differ_fail_their_load(
    model: str, settings: dict[str, str], fault: str, events: Events
) -> None:
    """And no other; no wrong byte is used, and none lands in a block that is somebody else's. The
    log names layer, group and blocks."""
    outcome = serve(model, alone(PRESETS[model]), settings, fault)
    assert outcome.violations == []
    is_recomputed = "kv_load_failure_policy" in settings
    assert outcome.requests["length"] == outcome.requests["total"] - (not is_recomputed)
    assert failures(events) == {"wrong-bytes": 1}
    (event,) = (event for event in events if event["event"] == "load-failed")
    assert "group (" in event["reason"]
    assert "block " in event["reason"]


@pytest.mark.parametrize("fault", DISHONEST, ids=lambda fault: fault.partition(":")[0])
@pytest.mark.parametrize("model", ["llama", "glm-flash"])
def test_without_digests_nobody_notices(model: str, fault: str) -> None:
    """But the rules that look at the bytes. A single bit may be of a row behind the prompt, which
    nobody reads."""
    outcome = serve(model, alone(PRESETS[model]), OFF, fault.replace("bits=1", "bits=20"))
    assert outcome.requests["length"] == outcome.requests["total"]
    assert {"same-output", "wrong-bytes"} <= {violation.oracle for violation in outcome.violations}


# ---------------------------------------------------------------- bytes that are equal


@pytest.mark.requirement("S8")
@pytest.mark.parametrize(
    ("model", "settings", "workload"),
    [
        *((model, {}, edges) for model in PRESETS),
        *(pytest.param(m, {}, conversations, marks=pytest.mark.soak) for m in PRESETS),
        ("llama", TWO_RANKS, conversations),
        ("glm-flash", MTP | TWO_RANKS, conversations),
        ("deepseek-mla", MTP, conversations),
        ("kimi-linear", {"extra_config.load_mode": "sync"}, conversations),
        ("gemma-swa", {"perturb": "true"}, conversations),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_honest_reads_are_equal(
    model: str, settings: dict[str, str], workload: Any, events: Events
) -> None:
    """Every load is verified and in place: with local hits, with blocks that other requests of the
    producer share and go on from, and at every end of a block."""
    outcome = serve(model, workload(PRESETS[model]), settings)
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    assert failures(events) == {}
    verified = Counter(event["verified"] for event in events if event["event"] == "loaded")
    assert verified[True] > 5
    assert not verified[False]


@pytest.mark.requirement("S8")
@pytest.mark.parametrize("node", ["p0", "d0"])
def test_ranks_of_unequal_numbers_have_equal_digests(node: str, events: Events) -> None:
    """Of a latent cache, which each has all of."""
    model = "deepseek-mla"
    fault = f"disagreement:node={node},tp_size=2"
    outcome = serve(model, alone(PRESETS[model]), {}, fault)
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    assert failures(events) == {}


# ------------------------------------------------------------ blocks that are let go of


def test_blocks_that_are_used_again_meanwhile_are_gone_and_not_wrong(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases run out while digests are computed, which takes seconds here, and other requests get
    the producer's few blocks."""
    monkeypatch.setattr(checksums, "NS_PER_KIB", 5 * MS)
    workload = UniformWorkload(
        requests=10, prompt_tokens=(200, 300), output_tokens=(3, 3), interval_ms=60.0
    )
    outcome = serve(
        "llama",
        workload,
        {
            "extra_config": "{verify_reads: all, defer_timeout: 0.3, renewal_timeout: 0.05, "
            "transfer_timeout: 20}",
            "num_blocks": "60",
        },
    )
    assert {violation.oracle for violation in outcome.violations} <= {"liveness"}
    causes = failures(events)
    assert causes["no-longer-held"] > 3
    assert set(causes) == {"no-longer-held"}


# ----------------------------------------------------------- who cannot, or is not asked


@pytest.mark.requirement("S7", "S8")
def test_upstream_cannot_be_verified_and_is_said_so_once(events: Events) -> None:
    """All its requests are served. It is never sent a question, which would end its listener."""
    from_upstream = {"topology.producer_connector": "moriio"}
    serve("llama", alone(PRESETS["llama"]), from_upstream | OFF)
    assert "peer-unverified" not in {event["event"] for event in events}
    events.clear()
    outcome = serve("llama", alone(PRESETS["llama"]), from_upstream)
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    assert [event["event"] for event in events].count("peer-unverified") == 1
    assert {event["verified"] for event in events if event["event"] == "loaded"} == {False}


def test_a_sample_of_loads_is_verified(events: Events) -> None:
    """Some, and the same ones on both ranks."""
    workload = UniformWorkload(
        requests=40, prompt_tokens=(40, 60), output_tokens=(1, 1), interval_ms=5.0
    )
    settings = TWO_RANKS | {"extra_config.verify_reads": "sample"}
    outcome = serve("llama", workload, settings)
    assert outcome.violations == []
    loaded = [event for event in events if event["event"] == "loaded"]
    by_rank = [
        {e["transfer"] for e in loaded if e["rank"] == rank and e["verified"]} for rank in (0, 1)
    ]
    assert by_rank[0] == by_rank[1]
    assert 0 < len(by_rank[0]) < 12
