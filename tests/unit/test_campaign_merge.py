from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults.campaign.merge import merge
from faults.campaign.plan import Plan, plan_here
from faults.campaign.result import Failure, SeedResult, summarize
from faults.campaign.store import Store
from faults.campaign.swarm import SwarmOptions
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.directories import FAILURES
from sim.errors import UsageError

SEEDS = range(3, 14)
WHOLE = plan_here(SwarmOptions(), SEEDS, (1, 1))
TORCH = WHOLE.versions["torch"]


def result_of(seed: int) -> SeedResult:
    """Different in every part that a summary adds up."""
    if seed % 4 == 0:
        failure = Failure(f"leak/{seed % 3}", "leak", f"words of {seed}")
        return SeedResult(seed=seed, status="failed", failures=[failure], wall_s=1.0)
    status = "error" if seed == 7 else "passed"
    table = {"abort": {"decode": seed}}
    return SeedResult(seed=seed, status=status, coverage=table, detail="died", wall_s=0.5)


def shard(directory: Path, part: int, parts: int = 3, **changes: Any) -> Path:
    plan = msgspec.structs.replace(WHOLE, shard=(part, parts), **changes)
    store = Store(directory, plan)
    for seed in plan.seeds:
        store.add(result_of(seed))
    return directory


def shards(tmp_path: Path) -> list[Path]:
    return [shard(tmp_path / f"shard-{part}", part) for part in (2, 3, 1)]


def summary(plan: Plan, results: list[SeedResult]) -> dict[str, Any]:
    return summarize(results, [], seeds=plan.seeds, wall_s=1.0, interrupted=False)


def test_shards_add_up_to_the_campaign_that_was_not_divided(tmp_path: Path) -> None:
    """In whatever order they are given."""
    whole = summary(WHOLE, [result_of(seed) for seed in SEEDS])
    assert summary(*merge(shards(tmp_path))) == whole
    assert whole["not_run"] == 0


def test_a_seed_that_no_shard_has_run_is_counted(tmp_path: Path) -> None:
    """As in a campaign that was interrupted."""
    directories = shards(tmp_path)
    lines = (directories[0] / "results.jsonl").read_text().splitlines(keepends=True)
    (directories[0] / "results.jsonl").write_text("".join(lines[1:]))
    assert summary(*merge(directories))["not_run"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"options": SwarmOptions(connector="reference", settings={"tp_size": "2"})},
            ["options.connector: moriio → reference", "options.settings.tp_size: none → 2"],
        ),
        ({"first": 2}, ["first: 3 → 2"]),
        ({"versions": WHOLE.versions | {"torch": "1"}}, [f"versions.torch: {TORCH} → 1"]),
    ],
)
def test_shards_of_another_campaign_are_refused(
    tmp_path: Path, change: dict[str, Any], said: list[str]
) -> None:
    """Both directories are named, and what differs, one a line and nothing else."""
    one, other = shard(tmp_path / "a", 1, 2), shard(tmp_path / "b", 2, 2, **change)
    with pytest.raises(UsageError, match=r"a and .*b are not shards of one campaign") as raised:
        merge([one, other])
    assert [line.strip() for line in str(raised.value).splitlines()[1:]] == said


def test_shards_that_are_not_all_there_or_are_there_twice_are_refused(tmp_path: Path) -> None:
    """A campaign that lost a third must not look like a whole one."""
    directories = shards(tmp_path)
    with pytest.raises(UsageError, match="shard 1/3 is missing"):
        merge(directories[:2])
    with pytest.raises(UsageError, match=r"shard-2: is given twice"):
        merge([tmp_path / "shard-2", tmp_path / "shard-2"])
    with pytest.raises(UsageError, match=r"again: is shard 2/3, and so is .*shard-2"):
        merge([*directories, shard(tmp_path / "again", 2)])
    with pytest.raises(UsageError, match="shard: 2/3 → 1/4"):
        merge([directories[0], shard(tmp_path / "quarter", 1, 4)])
    with pytest.raises(UsageError, match="is a directory with campaigns in it"):
        merge([tmp_path])
    Store(tmp_path / "foreign", WHOLE).add(SeedResult(seed=99, status="passed"))
    with pytest.raises(UsageError, match="seed 99 is not one of shard 1/1"):
        merge([tmp_path / "foreign"])


def test_a_shard_that_lost_seeds_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that was cut off, or all of them; it is one only if --budget left those seeds."""

    known, junit, whole = (tmp_path / name for name in ("known.yaml", "j.xml", "whole"))
    defect = {"owner": "me", "link": "x", "expires": "2999-01-01"}
    known.write_text(json.dumps([{"group": f"leak/{n}", **defect} for n in range(3)]))

    def merged(*arguments: Path | str) -> tuple[int, str]:
        code = dispatch.run(["merge", "--known", str(known), *map(str, arguments)])
        return code, capsys.readouterr().out

    one, other = shard(tmp_path / "a", 1, 2), shard(tmp_path / "b", 2, 2)
    (one / "results.jsonl").write_text(
        (one / "results.jsonl").read_text().replace('"error"', '"passed"')
    )
    assert merged(one, other)[0] == ExitCode.OK
    lines = (other / "results.jsonl").read_text()
    (other / "results.jsonl").write_text(lines[:-5])
    code, said = merged(one, other)
    assert code == ExitCode.TESTBED_FAILED
    assert "without a result, and no --budget says why: 1 seed: 12;" in said
    (other / "results.jsonl").unlink()
    assert merged(one, other, "--junit", junit)[0] == ExitCode.TESTBED_FAILED
    assert 'message="not run: 5 seeds"' in junit.read_text()
    (other / "left.json").write_text("[4, 6, 8, 10, 12]")
    code, said = merged(one, other, "--out", whole)
    assert code == merged(whole)[0] == ExitCode.OK
    assert "not run: 5 seeds, as the time of --budget was over" in said


def test_a_seed_with_results_that_differ_is_refused(tmp_path: Path) -> None:
    """Nobody can say which of them is right; the same result twice is one."""
    directories = shards(tmp_path)
    results = directories[0] / "results.jsonl"
    results.write_text(results.read_text() * 2)
    assert summary(*merge(directories)) == summary(WHOLE, [result_of(seed) for seed in SEEDS])
    other = SeedResult(seed=4, status="passed", event_hash="other")
    results.write_bytes(results.read_bytes() + msgspec.json.encode(other) + b"\n")
    with pytest.raises(UsageError, match=r"shard-2.*seed 4 .*differ \(failed .*passed other\)"):
        merge(directories)


def test_the_command_writes_one_campaign_with_its_artifacts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the shards' directories were when they ran; the result can be merged again."""
    one, other = shard(tmp_path / "a", 1, 2), tmp_path / "b"
    plan = msgspec.structs.replace(WHOLE, shard=(2, 2))
    store = Store(other, plan)
    failed = msgspec.structs.replace(result_of(4), artifact=f"elsewhere/{FAILURES}/seed-4")
    store.add(failed)
    (other / FAILURES / "seed-4").mkdir(parents=True)
    (other / FAILURES / "seed-4" / "artifact.json").write_text("{}")
    out = tmp_path / "all"
    code = dispatch.run(["merge", str(one), str(other), "--out", str(out), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == ExitCode.VIOLATION
    group = next(g for g in document["groups"] if g["smallest_seed"] == 4)
    assert group["artifact"] == str(other / FAILURES / "seed-4")
    assert (out / FAILURES / "seed-4" / "artifact.json").read_text() == "{}"
    whole, results = merge([out])
    assert (whole, len(results)) == (WHOLE, document["runs"])
    assert dispatch.run(["merge", str(one)]) == ExitCode.BAD_USAGE
