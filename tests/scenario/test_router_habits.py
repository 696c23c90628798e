"""Clients and routers that do what the plain path does not: a first token that ends the answer, a
consumer that is told before its producer has finished."""

from __future__ import annotations

import pytest

from faults.running import FaultedRun, run
from faults.schedule import with_faults
from sim.scenario import Scenario, UniformWorkload, with_settings

SMALL = Scenario(
    workload=UniformWorkload(
        requests=4, prompt_tokens=(100, 300), output_tokens=(4, 8), interval_ms=5.0
    ),
    extra_config={"transfer_timeout": 5},
    quiet_phase_s=30.0,
    max_virtual_s=100.0,
)
HYBRID = {"connector": "hybrid", "extra_config": "{}"}
REFERENCE = {"connector": "reference", "extra_config": "{}"}
WRITE = {"extra_config.read_mode": "'false'"}
EVERY_WAY = {"hybrid": HYBRID, "moriio": {}, "moriio-write": WRITE, "reference": REFERENCE}


def faulted(settings: dict[str, str], *faults: str) -> FaultedRun:
    return run(with_faults(with_settings(SMALL, settings), faults))


def rules(result: FaultedRun) -> set[str]:
    return {violation.oracle for violation in result.result.outcome.violations}


def legs(result: FaultedRun, request: str) -> dict[str, str]:
    """How each leg of a request ended."""
    records = [r.fields for r in result.result.log.records if r.kind == "leg-finished"]
    return {f["leg"]: f["outcome"] for f in records if f["request"] == request}


def posts_for(result: FaultedRun, request: str) -> int:
    """The transfers that landed in blocks of a request."""
    hits = [r.fields for r in result.result.log.records if r.kind == "fault-hit"]
    return sum(request in f["requests"] for f in hits if f["fault_kind"] == "latency-spike")


OBSERVED = "latency-spike:by_us=0,jitter_us=0,count=null"


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("way", EVERY_WAY)
def test_an_answer_ends_with_its_stop_token(way: str, after: int) -> None:
    """As the first token it ends the prefill leg, too; the client gets the tokens up to it from the
    consumer in any case, and the others get all of theirs."""
    result = faulted(EVERY_WAY[way], f"stop-token:request=req-1,after={after}")
    outcome = result.result.outcome
    assert outcome.requests == {"total": 4, "length": 3, "stop": 1, "unfinished": 0}
    if way != "moriio-write":  # where the client has its answer before the producer's last word
        assert legs(result, "req-1")["req-1-p0"] == ("length" if after else "stop")
    ended = [r.fields for r in result.result.log.records if r.kind == "request-ended"]
    assert [f["tokens"] for f in ended if f["request"] == "req-1"] == [after + 1]
    assert rules(result) == set()


def test_this_projects_connector_hands_over_a_prompt_whose_first_token_stops() -> None:
    """MoRIIO hands nothing over then, and its consumer computes the prompt again."""
    stop = "stop-token:request=req-1"
    assert posts_for(faulted(HYBRID, stop, OBSERVED), "req-1") > 0
    assert posts_for(faulted({}, stop, OBSERVED), "req-1") == 0


@pytest.mark.parametrize("stops", [True, False])
def test_blocks_that_are_still_being_written_from_are_given_up_with_a_stop_token(
    stops: bool,
) -> None:
    """A finding: in WRITE mode MoRIIO holds the blocks of a prefill that ended by its length, and
    gives those of one that stopped to the next request, whose bytes the consumer gets."""
    slow = "late-landing:request=req-1,by_s=0.5,count=null"
    long = {"workload.requests": "8", "workload.prompt_tokens": "[1000, 1300]"}
    result = faulted({**WRITE, **long}, slow, *(["stop-token:request=req-1"] if stops else []))
    expected = {"wrong-bytes", "use-after-free", "same-output"} if stops else set()
    assert rules(result) == expected


@pytest.mark.parametrize("phase", ["queued_at_p", "prefill"])
def test_a_consumer_that_is_told_too_early_refuses_the_request(phase: str) -> None:
    """There are no blocks that it could read; the request ends with an error, nobody else notices,
    and what the producer offers in vain is given back."""
    result = faulted(HYBRID, f"early-hand-off:request=req-1,phase={phase}")
    assert result.faults[0].hits == 1
    outcome = result.result.outcome
    assert outcome.requests == {"total": 4, "error": 1, "length": 3, "unfinished": 0}
    assert rules(result) == set()


def test_moriio_takes_blocks_that_nobody_filled_for_a_prompt_when_it_is_told_too_early() -> None:
    """A finding: it reads nothing, reports the load as done, and answers from empty blocks."""
    result = faulted({}, "early-hand-off:request=req-1,phase=prefill")
    assert rules(result) >= {"wrong-bytes", "same-output"}
    assert result.result.outcome.requests["length"] == 4


def test_where_producers_write_every_consumer_is_told_early() -> None:
    """So there is nothing to disturb, and the fault says so."""
    result = faulted(WRITE, "early-hand-off:request=req-1,phase=prefill")
    assert result.faults[0].strikes == 0
    assert "every consumer is told before" in result.faults[0].missed[0]
    assert rules(result) == set()


HALVES = ("disagreement:node=d0,dtype=float16",)
EIGHTHS = (
    "disagreement:node=p0,cache_dtype=fp8_e4m3",
    "disagreement:node=d0,cache_dtype=fp8_e5m2",
)


@pytest.mark.parametrize("faults", [HALVES, EIGHTHS], ids=["bfloat16-float16", "fp8"])
def test_caches_of_another_type_and_the_same_size_are_refused(faults: tuple[str, ...]) -> None:
    """No byte is read; all requests end with an error, the one after the quiet phase too."""
    result = faulted(HYBRID, *faults)
    assert result.result.outcome.requests == {"total": 4, "error": 4, "unfinished": 0}
    assert rules(result) == {"liveness"}
    assert not [r for r in result.result.log.records if r.kind == "landed"]


@pytest.mark.parametrize("settings", [{}, WRITE], ids=["read", "write"])
@pytest.mark.parametrize("faults", [HALVES, EIGHTHS], ids=["bfloat16-float16", "fp8"])
def test_moriio_serves_from_caches_of_another_type(
    settings: dict[str, str], faults: tuple[str, ...]
) -> None:
    """A finding: its handshake compares no types."""
    assert rules(faulted(settings, *faults)) == {"fail-closed"}


@pytest.mark.parametrize("settings", [HYBRID, {}, WRITE], ids=["hybrid", "read", "write"])
def test_caches_of_the_same_type_are_served_whatever_it_is(settings: dict[str, str]) -> None:
    """Two engines with eight bits an entry fit each other."""
    same = [f"disagreement:node={node},cache_dtype=fp8_e4m3" for node in ("p0", "d0")]
    assert rules(faulted(settings, *same)) == set()
