from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from in_process_pool import InProcessPool

from faults.campaign.campaign import Campaign
from faults.campaign.merge import merge
from faults.campaign.plan import Plan, Shard, plan_here
from faults.campaign.result import SeedResult, summarize
from faults.campaign.store import Store
from faults.campaign.swarm import SwarmOptions
from faults.campaign.worker import Job, run_job
from faults.cli import dispatch
from faults.cli.outcome import ExitCode

REFERENCE = SwarmOptions(connector="reference", models=("llama",))


def test_a_campaign_of_a_correct_connector_is_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers, six seeds, faults in all of them; the results are those of single runs."""
    out = tmp_path / "campaign"
    arguments = ["campaign", "--seeds", "6", "--connector", "reference", "--model", "llama"]
    code = dispatch.run([*arguments, "--jobs", "2", "--out", str(out), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["runs"], document["passed"]) == (ExitCode.OK, 6, 6), document
    assert document["groups"] == []
    assert "wrong-bytes/consumer" in document["canary"]["groups"]
    assert set(document) >= {"by_oracle", "failing_seeds", "fault_coverage", "wall_s", "runs_per_s"}
    lines = (out / "results.jsonl").read_text().splitlines()
    of_workers = {r["seed"]: r["event_hash"] for r in map(json.loads, lines)}
    assert of_workers[3] == run_job(Job(3, REFERENCE)).event_hash


def test_an_overlay_of_which_a_seed_uses_nothing_is_a_refusal(tmp_path: Path) -> None:
    """Which of vLLM's connectors are loaded is not known before; the testbed is not at fault."""
    other = tmp_path / "vllm/distributed/kv_transfer/kv_connector/v1/example_connector.py"
    other.parent.mkdir(parents=True)
    other.write_text("")
    options = msgspec.structs.replace(REFERENCE, settings={"overlay": str(tmp_path)})
    plan_here(options, range(1), (1, 1))
    result = run_job(Job(0, options))
    assert result.status == "refused"
    assert result.detail.startswith(f"no module of the engines is in overlay '{tmp_path}'")


def test_two_shards_merged_are_the_whole_campaign(tmp_path: Path) -> None:
    """All but the times, from real runs, with failures in them."""
    options = SwarmOptions(
        models=("llama",),
        quiet_phase_s=2.0,
        settings={"workload.requests": "3", "extra_config.transfer_timeout": "1"},
    )

    def run(name: str, shard: Shard) -> Store:
        store = Store(tmp_path / name, plan_here(options, range(10, 14), shard))
        Campaign(store).run(InProcessPool(), None, lambda result: None)  # type: ignore[arg-type]
        return store

    def summary(plan: Plan, results: list[SeedResult]) -> dict[str, Any]:
        document = summarize(results, [], seeds=plan.seeds, wall_s=1.0, interrupted=False)
        for group in document["groups"]:
            assert Path(group.pop("artifact")).is_dir()
        return document

    whole = run("whole", (1, 1))
    for part in (1, 2):
        run(f"part-{part}", (part, 2))
    merged = summary(*merge([tmp_path / "part-1", tmp_path / "part-2"]))
    assert merged == summary(whole.plan, list(whole.results()))
    assert (merged["runs"], merged["errors"]) == (4, 0)
    assert merged["groups"]


def test_a_failing_seed_is_a_failure_with_an_artifact(tmp_path: Path) -> None:
    """Every request's hand-off is lost, and the connector's blocks with it; the artifact is kept
    for a group that nobody has seen, and replays."""
    options = SwarmOptions(
        models=("llama",),
        quiet_phase_s=2.0,
        settings={"router.holds": "[]", "perturb": "false", "extra_config.transfer_timeout": "1"},
    )
    for seed in range(40):
        result = run_job(Job(seed, options, str(tmp_path)))
        if result.status == "failed":
            break
    assert result.status == "failed"
    assert result.artifact is not None
    assert dispatch.run(["replay", result.artifact, "--json"]) == ExitCode.VIOLATION
    groups = [failure.group for failure in result.failures]
    again = run_job(Job(seed, options, str(tmp_path / "more"), groups))
    assert again.event_hash == result.event_hash
    assert again.artifact is None


def test_bad_options_are_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the name that is wrong."""
    assert dispatch.run(["campaign", "--seeds", "3", "--model", "lama"]) == ExitCode.BAD_USAGE
    assert "llama" in capsys.readouterr().err
    code = dispatch.run(["campaign", "--seeds", "3", "--set", "tp_sise=2"])
    assert code == ExitCode.BAD_USAGE
    assert "tp_size" in capsys.readouterr().err
