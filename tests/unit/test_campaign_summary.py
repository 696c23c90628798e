"""What a campaign adds up to."""

from __future__ import annotations

import pytest

from faults.campaign.result import Failure, SeedResult, summarize
from faults.cli.campaign_summary import exit_code
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
