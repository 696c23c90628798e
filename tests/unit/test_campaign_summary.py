"""What a campaign adds up to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rich.console import Console

from faults.campaign.result import Failure, SeedResult, summarize
from faults.campaign.swarm import SwarmOptions
from faults.cli.campaign_summary import exit_code, render
from faults.cli.outcome import ExitCode
from faults.results import CampaignRun, RuleBroken


def failed(seed: int, *groups: str) -> SeedResult:
    failures = [Failure(group, group.partition("/")[0], f"{group} in {seed}") for group in groups]
    return SeedResult(seed=seed, status="failed", failures=failures)


def test_a_summary_counts_runs_and_keeps_the_smallest_seed_of_each_group() -> None:
    """In whatever order results came."""
    results = [
        failed(9, "leak/producer"),
        failed(4, "leak/producer", "liveness/not-ended"),
        SeedResult(seed=1, status="passed", coverage={"abort": {"decode": 2}}),
        SeedResult(seed=2, status="refused", detail="no"),
        SeedResult(seed=3, status="error", detail="died"),
        SeedResult(seed=5, status="failed-closed", detail="ended"),
    ]
    document = summarize(
        results, ["leak/producer"], seeds=range(12), wall_s=10.0, interrupted=False
    )
    counts = [
        document[key] for key in ("runs", "passed", "failed", "refused", "failed_closed", "errors")
    ]
    assert counts == [6, 1, 2, 1, 1, 1]
    assert document["failing_seeds"] == [4, 9]
    assert document["by_oracle"] == {"leak": 2, "liveness": 1}
    assert document["error_seeds"] == [{"seed": 3, "detail": "died"}]
    reasons = [(e["status"], e["seeds"], e["smallest_seed"]) for e in document["unserved"]]
    assert reasons == [("refused", 1, 2), ("failed-closed", 1, 5)]
    (leak, liveness) = document["groups"]
    assert (leak["smallest_seed"], leak["seeds"], leak["known"]) == (4, 2, True)
    assert leak["detail"] == "leak/producer in 4"
    assert document["new_groups"] == [liveness["group"]]
    assert document["fault_coverage"]["abort"]["decode"] == 2
    assert ["abort", "prefill"] in document["holes"]
    assert (document["runs_per_s"], document["not_run"]) == (0.6, 6)


def test_a_campaign_that_went_on_says_how_many_runs_its_seconds_are_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those from before took no time now, and do not count in the rate."""
    results = [SeedResult(seed=seed, status="passed") for seed in range(12)]

    def said(earlier: int) -> tuple[str, float]:
        document = summarize(
            results, [], seeds=range(12), wall_s=4.0, interrupted=False, earlier=earlier
        )
        render(document, SwarmOptions(), Console(width=200))
        return capsys.readouterr().out.partition(":")[0], document["runs_per_s"]

    assert said(0) == ("12 runs in 4.0 s", 3.0)
    assert said(4) == ("12 runs, 8 of them now in 4.0 s", 2.0)
    assert said(12) == ("12 runs, none of them now in 4.0 s", 0.0)


def test_a_summary_says_what_may_be_concluded_if_nothing_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the runs that were judged, not of those refused. Known groups do not take it away."""
    read = {"link-down": {"read_posted": 1, "read_in_flight": 2, "decode": 9}, "abort": {}}
    results = [SeedResult(seed=seed, status="passed") for seed in range(298)]
    results += [SeedResult(seed=298, status="failed-closed"), failed(299, "leak/producer")]
    results += [SeedResult(seed=300, status="refused")]
    results += [SeedResult(seed=301, status="passed", coverage=read)]

    def document(*known: str, results: list[SeedResult] = results) -> dict[str, Any]:
        return summarize(results, known, seeds=range(302), wall_s=1.0, interrupted=False)

    clean = document("leak/producer")
    assert clean["failing_share_below"] == 3 / 301
    assert clean["reads_under_fault"] == {"link-down": 3}
    render(clean, SwarmOptions(), Console(width=200))
    said = capsys.readouterr().out
    assert "reads posted or in flight under each fault: link-down 3\n" in said
    assert "no run failed but in known groups: with 95 % confidence less than 1 % of" in said
    render({**clean, "failing_share_below": 3 / 19360}, SwarmOptions(), Console(width=200))
    assert "less than 0.016 % of" in capsys.readouterr().out  # a bound is rounded up
    assert document()["failing_share_below"] is None
    error = SeedResult(seed=400, status="error", detail="died")
    assert document("leak/producer", results=[*results, error])["failing_share_below"] is None
    assert document(results=results[:29])["failing_share_below"] is None


def test_a_campaign_that_fails_ends_with_the_line_that_replays_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the group that says most, of those that nobody excuses; a run that was not kept is run,
    and kept, before."""
    options = SwarmOptions(connector="hybrid", models=("llama",), settings={"tp_size": "2"})
    results = [failed(4, "leak/producer"), failed(5, "same-output")]
    results += [failed(3, "blast-radius"), failed(6, "blast-radius")]

    def last_line(*known: str) -> str:
        document = summarize(results, known, seeds=range(7), wall_s=1.0, interrupted=False)
        render(document, options, Console(width=200))
        return capsys.readouterr().out.splitlines()[-1]

    assert last_line() == (
        "faultlab campaign --seeds 4:5 --connector hybrid --model llama --set tp_size=2 "
        "--out seed-4; faultlab replay seed-4/failures/seed-4"
    )
    excused = ["leak/producer", "blast-radius"]
    assert last_line(*excused).endswith("faultlab replay seed-5/failures/seed-5")
    assert "replay" not in last_line(*excused, "same-output")
    results[0] = msgspec.structs.replace(results[0], artifact="night/failures/seed-4")
    assert last_line() == "faultlab replay night/failures/seed-4"


def test_reasons_of_as_many_seeds_are_in_the_order_of_the_seeds() -> None:
    """A campaign that was resumed has its results in another order."""
    results = [
        SeedResult(seed=seed, status="refused", detail=why)
        for seed, why in enumerate(("no room", "no port", "no room", "no port", "no model"))
    ]
    for each in (results, results[::-1]):
        document = summarize(each, [], seeds=range(5), wall_s=1.0, interrupted=False)
        assert [e["smallest_seed"] for e in document["unserved"]] == [0, 1, 4]


def test_what_a_sentence_repeats_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """As in the story of a run, of failures and refusals."""
    flushed = "Work Request Flushed Error (code=7)"
    detail = f"p0 died: RDMA failed; {'; '.join([flushed] * 35)}"
    failure = Failure("engine-died", "engine-died", detail)
    results = [
        SeedResult(seed=1, status="failed", failures=[failure]),
        SeedResult(seed=2, status="refused", detail=detail),
    ]
    document = summarize(results, [], seeds=range(3), wall_s=1.0, interrupted=False)
    render(document, SwarmOptions(), Console(width=200))
    told = capsys.readouterr().out
    assert told.count("p0 died: RDMA failed; Work Request Flushed Error (code=7) (35 times)\n") == 3


def test_a_campaign_of_which_all_is_refused_has_tested_nothing() -> None:
    """And has not passed; of reasons that differ in numbers alone the smallest seed's is told."""
    results = [
        SeedResult(seed=seed, status="refused", detail=f"d{seed} does not start") for seed in (3, 1)
    ]
    document = summarize(results, [], seeds=range(2), wall_s=1.0, interrupted=False)
    assert exit_code(document) == ExitCode.BAD_USAGE
    (entry,) = document["unserved"]
    assert (entry["seeds"], entry["detail"]) == (2, "d1 does not start")
    ran = CampaignRun(results=results, summary=document)
    assert not ran.passed
    with pytest.raises(RuleBroken, match="refused, as seed 1: d1 does not start"):
        ran.require_pass()
    passed = SeedResult(seed=2, status="passed")
    document = summarize([*results, passed], [], seeds=range(3), wall_s=1.0, interrupted=False)
    assert exit_code(document) == ExitCode.OK
