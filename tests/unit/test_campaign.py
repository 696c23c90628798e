from __future__ import annotations

import datetime
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from faults.campaign import pool
from faults.campaign.campaign import Campaign
from faults.campaign.junit import write_junit
from faults.campaign.known import load_known
from faults.campaign.plan import plan_here
from faults.campaign.pool import Pool
from faults.campaign.result import Failure, SeedResult, group_of, summarize
from faults.campaign.seeds import parse_duration, parse_seeds, parse_shard, share
from faults.campaign.store import Store, read, read_left
from faults.campaign.swarm import SwarmOptions, _is_for_all, draw_faults, scenario_of
from faults.campaign.vllm_defects import VLLM_DEFECTS
from faults.campaign.worker import Job
from faults.cli import dispatch
from faults.cli.campaign_summary import excused_groups, exit_code
from faults.cli.options import fabric_setting
from faults.cli.outcome import ExitCode
from faults.fault import parameters
from faults.kinds import KINDS
from faults.mutants.catalog import MUTANTS
from faults.schedule import decode
from sim.errors import UsageError
from sim.fabric import named_fabric
from sim.kernel import Seed
from sim.oracles import Violation

OPTIONS = SwarmOptions()
PLAN = plan_here(OPTIONS, range(5), (1, 1))


# ------------------------------------------------------------------- the swarm


def test_a_seed_is_a_scenario() -> None:
    """The same one whenever it is asked for, and another one than other seeds'."""
    scenarios = [scenario_of(seed, OPTIONS) for seed in range(20)]
    assert scenarios == [scenario_of(seed, OPTIONS) for seed in range(20)]
    assert len({scenario.digest() for scenario in scenarios}) == 20
    assert [scenario.seed for scenario in scenarios] == list(range(20))


def test_every_kind_that_a_connector_can_survive_is_drawn() -> None:
    """Without anybody naming it; and no other."""
    drawn = {f["kind"] for seed in range(300) for f in scenario_of(seed, OPTIONS).faults}
    unfair = ("before_start", "breaks_contract", "needs_fail_closed")
    fair = {name for name, kind in KINDS.items() if not any(getattr(kind, why) for why in unfair)}
    assert drawn == fair


def test_bytes_change_unnoticed_only_where_somebody_looks_at_them() -> None:
    """A campaign draws these kinds with verify_reads: all."""
    settings = {"extra_config.verify_reads": "all"}
    options = msgspec.structs.replace(OPTIONS, settings=settings)
    drawn = {f["kind"] for seed in range(100) for f in scenario_of(seed, options).faults}
    assert {"corrupt-bytes", "early-completion"} <= drawn


def test_a_campaign_has_the_fabric_that_was_asked_for(tmp_path: Path) -> None:
    """By name, and by file; the seeds have the file's numbers, so that they need no file. ``--set``
    goes before, as it does in a run."""
    thor2 = named_fabric("mi300x-thor2")
    own = msgspec.structs.replace(thor2, name="own", item_ns=77)
    file = tmp_path / "fabric.toml"
    numbers = msgspec.to_builtins(own)
    lines = [f"{key} = {json.dumps(number)}" for key, number in numbers.items() if key != "timers"]
    file.write_text("\n".join(lines))
    for asked, profile in (("mi300x-thor2", thor2), (str(file), own)):
        options = msgspec.structs.replace(OPTIONS, settings=fabric_setting(asked))
        assert scenario_of(3, options).fabric_profile == profile
    named = msgspec.structs.replace(OPTIONS, settings=fabric_setting("mi300x-thor2"))
    assert scenario_of(3, named).workload == scenario_of(3, OPTIONS).workload
    assert fabric_setting(None) == {}


def test_a_campaign_refuses_a_fabric_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Before a worker starts."""
    code = dispatch.run(["campaign", "--seeds", "1", "--fabric", "mi300x-thor3"])
    assert code == ExitCode.BAD_USAGE
    assert "no fabric 'mi300x-thor3'" in capsys.readouterr().err


HYBRID = SwarmOptions(connector="hybrid")


def test_a_connector_with_more_answers_is_asked_more() -> None:
    """Some seeds verify reads, and only those draw what nothing else notices; some lose the
    connector's own key, in parameters and messages, both ways. What is drawn besides stays."""
    plain = msgspec.structs.replace(HYBRID, verified_share=0.0, apart_share=0.0)
    verified, ways = 0, set()
    for seed in range(400):
        scenario, bare = scenario_of(seed, HYBRID), scenario_of(seed, plain)
        assert scenario.engine == bare.engine
        assert scenario.workload == bare.workload
        of_all = [f for f in scenario.faults if _is_for_all(KINDS[f["kind"]])]
        assert of_all == [f for f in bare.faults if _is_for_all(KINDS[f["kind"]])]
        verifies = scenario.extra_config.get("verify_reads") == "all"
        verified += verifies
        assert verifies or not any(KINDS[f["kind"]].breaks_contract for f in scenario.faults)
        ways |= {(f["kind"], f["how"]) for f in scenario.faults if "how" in f}
    assert 60 < verified < 140
    kinds = ("key-stripped", "message-key-stripped")
    assert ways == {(kind, how) for kind in kinds for how in ("stripped", "renamed")}


def test_engines_disagree_about_everything_where_there_is_an_answer_to_it() -> None:
    """Every field of the kind, on either side; never where the connector has none, and never when
    mutants are measured that have nothing to do with it."""
    options = msgspec.structs.replace(HYBRID, apart_share=0.5)
    apart = [f for seed in range(300) for f in scenario_of(seed, options).faults if _is_apart(f)]
    said = {name for f in apart for name, value in f.items() if value and name not in _OF_ALL}
    assert said == set(parameters(KINDS["disagreement"]))
    assert {f["target"]["node"][0] for f in apart} == {"p", "d"}
    for options in (OPTIONS, MUTANTS["no-fence"].options(None)):
        seeds = [scenario_of(seed, options) for seed in range(100)]
        assert not any(_is_apart(f) for s in seeds for f in s.faults)
        assert not any("verify_reads" in s.extra_config for s in seeds)


_OF_ALL = ("kind", "when", "target")


def _is_apart(fault: dict[str, Any]) -> bool:
    return KINDS[fault["kind"]].sets_apart


def test_topologies_from_one_pair_of_engines_to_two_of_each_are_drawn() -> None:
    """By a setting there is only what it says."""
    sizes = [scenario_of(seed, OPTIONS).topology for seed in range(200)]
    drawn = {(topology.producers, topology.consumers) for topology in sizes}
    assert drawn == {(1, 1), (1, 2), (2, 1), (2, 2)}
    one = msgspec.structs.replace(OPTIONS, settings={"topology.producers": "1"})
    assert {scenario_of(seed, one).topology.producers for seed in range(100)} == {1}


def test_a_seed_enables_a_few_kinds_only() -> None:
    """Runs in which everything may happen would all be alike."""
    schedules = [draw_faults(Seed(seed).stream("test")) for seed in range(100)]
    kinds = [len({fault.kind() for fault in faults}) for faults in schedules]
    assert max(kinds) <= 4
    assert min(kinds) == 1
    assert all(faults for faults in schedules)


def test_drawn_faults_are_accepted_and_vary_in_their_parameters() -> None:
    """Choices are drawn from what a parameter's type allows."""
    faults = [
        f for seed in range(300) for f in decode(scenario_of(seed, OPTIONS).faults, source="drawn")
    ]
    statuses = {msgspec.to_builtins(f)["code"] for f in faults if hasattr(f, "code")}
    assert len(statuses) > 5
    assert {f.when.phase is None for f in faults} == {True, False}


def test_settings_hold_for_every_seed() -> None:
    """They are --set's, and refused like --set's."""
    options = msgspec.structs.replace(
        OPTIONS, settings={"tp_size": "1", "executor": "multi-process"}
    )
    assert {scenario_of(seed, options).engine.executor for seed in range(20)} == {"multi-process"}
    wrong = msgspec.structs.replace(OPTIONS, settings={"tp_sise": "1"})
    with pytest.raises(UsageError, match="did you mean 'tp_size'"):
        scenario_of(0, wrong)


# ------------------------------------------------------------ seeds and shares


def test_seeds_shards_and_budgets_are_read() -> None:
    """Shards are disjoint, and together they are everything."""
    assert parse_seeds("3") == range(3)
    assert parse_seeds("5:8") == range(5, 8)
    parts = [share(range(10, 21), parse_shard(f"{i}/3")) for i in (1, 2, 3)]
    assert sorted(seed for part in parts for seed in part) == list(range(10, 21))
    assert parse_duration("1.5m") == 90.0


@pytest.mark.parametrize("text", ["0", "8:5", "x", "-3", "1:2:3", "9" * 30])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    """With an example of what is accepted."""
    with pytest.raises(UsageError, match="such as 100 or 50:80; of 18 digits at most"):
        parse_seeds(text)


def test_shards_and_budgets_that_are_none_are_refused() -> None:
    """With an example of what is accepted."""
    for text in ("0/2", "3/2", "half"):
        with pytest.raises(UsageError, match="such as 2/4"):
            parse_shard(text)
    for text in ("10", "0s", "soon"):
        with pytest.raises(UsageError, match="such as 90s"):
            parse_duration(text)


# -------------------------------------------------------------------- grouping


def violation(oracle: str, node: str | None = None, **evidence: object) -> Violation:
    return Violation(oracle, 1.5, node, "req-1", "words", dict(evidence))


def test_a_group_is_what_failed_and_where() -> None:
    """An edit that moves lines, another request or another time is the same group."""
    tracebacks = [f"vllm.moriio.engine:{line} in Wrapper.wait" for line in (930, 947)]
    died = [violation("liveness", "d0", kind="engine-died", traceback=[t]) for t in tracebacks]
    assert {group_of(v) for v in died} == {"liveness/engine-died/vllm.moriio.engine.Wrapper.wait"}
    assert group_of(violation("wrong-bytes", "d3")) == "wrong-bytes/consumer"
    assert group_of(violation("leak", "p0")) == "leak/producer"
    assert group_of(violation("same-output")) == "same-output"


def failed(seed: int, *groups: str) -> SeedResult:
    failures = [Failure(group, group.partition("/")[0], f"{group} in {seed}") for group in groups]
    return SeedResult(seed=seed, status="failed", failures=failures)


# --------------------------------------------------------------------- workers

FAKE_WORKER = """
import json, os, sys, time
for line in sys.stdin:
    seed = json.loads(line)["seed"]
    if seed == 2:
        os._exit(7)
    if seed == 4:
        time.sleep(600)
    print(json.dumps({"seed": seed, "status": "passed"}), flush=True)
"""


def job(seed: int) -> Job:
    return Job(seed, OPTIONS)


def test_a_worker_that_dies_or_hangs_costs_its_seed_only(tmp_path: Path) -> None:
    """The seed is reported with what happened, and all others have their results."""
    script = tmp_path / "worker.py"
    script.write_text(FAKE_WORKER)
    with Pool(2, limit_s=5.0, command=[sys.executable, str(script)]) as pool:
        results = {result.seed: result for result in pool.run(iter(range(8)), job)}
    assert sorted(results) == list(range(8))
    assert {seed for seed, r in results.items() if r.status == "passed"} == {0, 1, 3, 5, 6, 7}
    assert results[2].detail == "the worker process died (exit code 7)"
    assert results[4].detail == "the worker process did not finish it within 5 s"


def test_workers_end_with_the_campaign(tmp_path: Path) -> None:
    """Ctrl-C closes the stream of results, and nobody goes on computing."""
    script = tmp_path / "worker.py"
    script.write_text(FAKE_WORKER)
    with Pool(2, limit_s=60.0, command=[sys.executable, str(script)]) as pool:
        results = pool.run(iter([0, 4, 4]), job)
        assert next(results).seed == 0
        workers = [worker.process for worker in pool._workers]
        results.close()
        assert workers
        assert all(process.poll() is not None for process in workers)


def test_a_worker_whose_campaign_was_killed_ends_without_a_word() -> None:
    """Its answer finds no reader, which is no failure of its own."""
    program = (
        "import sys; from faults.campaign import worker; from faults.campaign.result import *\n"
        "worker.run_job = lambda job: SeedResult(seed=job.seed, status='passed')\n"
        "sys.exit(worker.main())"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate(msgspec.json.encode(job(1)) + b"\n", timeout=120)
    assert (process.returncode, said) == (0, b"")


def test_workers_stay_for_the_next_run_of_the_pool(tmp_path: Path) -> None:
    """Loading vLLM takes seconds; a worker that ran one thing takes the next, and ends at last."""
    script = tmp_path / "worker.py"
    script.write_text(FAKE_WORKER)
    with Pool(1, limit_s=60.0, command=[sys.executable, str(script)]) as pool:
        list(pool.run(iter([0]), job))
        (worker,) = pool._idle
        assert [result.seed for result in pool.run(iter([1, 3]), job)] == [1, 3]
        assert pool._idle == [worker]
        assert worker.process.poll() is None
    assert worker.process.poll() is not None


def test_a_canary_that_nobody_notices_stops_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers that pass everything would pass every campaign: exit code 3, and no seed is run."""
    script = tmp_path / "worker.py"
    script.write_text(FAKE_WORKER)
    blind = partial(Pool, command=[sys.executable, str(script)])
    monkeypatch.setattr(pool, "Pool", blind)
    out = tmp_path / "out"
    code = dispatch.run(["campaign", "--seeds", "3", "--jobs", "1", "--out", str(out)])
    assert code == ExitCode.TESTBED_FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "the rule wrong-bytes did not notice: passed" in said
    assert not (out / "results.jsonl").exists()


def test_a_canary_whose_worker_dies_is_not_said_to_be_unnoticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was seen of it, so no rule is to blame."""
    dying = [sys.executable, "-c", "import os; input(); os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(pool, "Pool", partial(Pool, command=dying))
    code = dispatch.run(["campaign", "--seeds", "3", "--jobs", "1"])
    said = " ".join(capsys.readouterr().err.split())
    assert code == ExitCode.TESTBED_FAILED
    assert "did not end: error the worker process died (signal 9)" in said
    assert "did not notice" not in said


def test_a_disk_that_is_full_is_said_of_the_results(tmp_path: Path) -> None:
    """A write does not say by itself where there was no room."""
    with Store(tmp_path / "c", PLAN) as store:
        results = tmp_path / "c" / "results.jsonl"
        results.symlink_to("/dev/full")
        with pytest.raises(OSError, match=r"No space left on device; .*--resume goes on") as full:
            store.add(SeedResult(seed=1, status="passed"))
    assert full.value.filename == str(results)


# -------------------------------------------------- directories, known defects


class FakePool:
    """Answers at once, until Ctrl-C."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.ran: list[int] = []

    def run(self, seeds, make_job):  # type: ignore[no-untyped-def]
        for seed in seeds:
            if seed == self.stop_at:
                raise KeyboardInterrupt
            make_job(seed)
            self.ran.append(seed)
            status = "error" if seed == 1 else "passed"
            yield SeedResult(seed=seed, status=status)


def campaign(directory: Path, pool: FakePool, *, resume: bool = False) -> Campaign:
    with Store(directory, PLAN, resume=resume) as store:
        made = Campaign(store)
        made.run(pool, None, lambda result: None)  # type: ignore[arg-type]
    return made


def test_an_interrupted_campaign_is_usable_and_goes_on(tmp_path: Path) -> None:
    """It runs what is missing, and again what ended without a result."""
    first = campaign(tmp_path / "c", FakePool(stop_at=3))
    assert first.document()["interrupted"]
    assert exit_code(first.document()) == ExitCode.INTERRUPTED
    assert (first.document()["runs"], first.document()["not_run"]) == (3, 2)
    with (tmp_path / "c" / "results.jsonl").open("ab") as file:
        file.write(b'{"seed": 3, "sta')  # the process was killed in the middle of a line
    pool = FakePool()
    document = campaign(tmp_path / "c", pool, resume=True).document()
    assert (pool.ran, document["runs_earlier"]) == ([1, 3, 4], 2)
    assert (document["runs"], document["interrupted"], document["not_run"]) == (5, False, 0)
    lines = (tmp_path / "c" / "results.jsonl").read_text().splitlines()
    assert len(lines) == 5


def test_to_go_on_needs_a_campaign_to_go_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch.run(["campaign", "--seeds", "1", "--resume"]) == ExitCode.BAD_USAGE
    assert "--resume: needs --out" in capsys.readouterr().err


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """Nothing is overwritten, and another campaign's results are not mixed in."""
    campaign(tmp_path / "c", FakePool())
    with pytest.raises(UsageError, match="add --resume"):
        Store(tmp_path / "c", PLAN)
    options = msgspec.structs.replace(OPTIONS, connector="reference")
    for change, said in (
        ({"options": options}, "options.connector: moriio → reference"),
        ({"end": 6}, "end: 5 → 6"),
        ({"shard": (1, 2)}, "shard: 1/1 → 1/2"),
    ):
        other = msgspec.structs.replace(PLAN, **change)
        with pytest.raises(UsageError, match=rf"another --out. .*:\n  {said}$"):
            Store(tmp_path / "c", other, resume=True)
    with pytest.raises(UsageError, match="nothing: does not exist"):
        Store(tmp_path / "nothing", PLAN, resume=True)


def test_a_budget_that_ends_is_no_failure_and_says_what_it_left(tmp_path: Path) -> None:
    """Until somebody goes on."""
    with Store(tmp_path / "c", PLAN) as store:
        made = Campaign(store)
        made.run(FakePool(), -1.0, lambda result: None)  # type: ignore[arg-type]
    assert (made.document()["not_run"], exit_code(made.document())) == (5, ExitCode.OK)
    assert read_left(tmp_path / "c") == [0, 1, 2, 3, 4]
    campaign(tmp_path / "c", FakePool(stop_at=3), resume=True)
    assert read_left(tmp_path / "c") == []


def test_a_directory_has_one_campaign_at_a_time(tmp_path: Path) -> None:
    """Two would run every seed twice, and each lose lines of the other's."""
    with Store(tmp_path / "c", PLAN):
        with pytest.raises(UsageError, match=f"{tmp_path / 'c'}: a campaign is running in it"):
            Store(tmp_path / "c", PLAN, resume=True)
        with pytest.raises(UsageError, match="not a new or empty"):
            Store(tmp_path / "c", PLAN)
    pool = FakePool()
    campaign(tmp_path / "c", pool, resume=True)
    assert pool.ran == [0, 1, 2, 3, 4]


def test_a_seed_counts_once_however_often_it_was_run(tmp_path: Path) -> None:
    """A result goes before an error, as when the seed is tried again."""
    campaign(tmp_path / "c", FakePool())
    results = tmp_path / "c" / "results.jsonl"
    again = SeedResult(seed=1, status="passed", wall_s=3.0)
    results.write_bytes(results.read_bytes() * 2 + msgspec.json.encode(again) + b"\n")
    read_back = {result.seed: result.status for result in read(tmp_path / "c")[1]}
    assert read_back == dict.fromkeys(range(5), "passed")
    assert len(read(tmp_path / "c")[1]) == 5
    document = campaign(tmp_path / "c", FakePool(), resume=True).document()
    assert (document["runs"], document["passed"], document["not_run"]) == (5, 5, 0)


def test_known_defects_excuse_until_their_day(tmp_path: Path) -> None:
    """And a file that is none is refused with the place in it."""
    path = tmp_path / "known.yaml"
    path.write_text("- {group: leak/producer, owner: me, link: 'x', expires: '2026-11-30'}\n")
    (defect,) = load_known(path)
    assert defect.excuses_on(datetime.date(2026, 11, 30))
    assert not defect.excuses_on(datetime.date(2026, 12, 1))
    path.write_text("- {group: leak/producer, owner: me, link: 'x'}\n")
    with pytest.raises(UsageError, match=r"known\[0\]\.expires: missing"):
        load_known(path)
    path.write_text("- {group: a, owner: me, link: 'x', expires: soon}\n")
    with pytest.raises(UsageError, match="expires: is 'soon', expected a day such as"):
        load_known(path)
    path.write_text("- {group: a, owner: me, link: 'x', expires: '2026-13-01'}\n")
    with pytest.raises(UsageError, match=r"known\[0\]"):
        load_known(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"known.yaml: is not UTF-8 text"):
        load_known(path)


def test_what_is_vllms_own_fails_no_campaign() -> None:
    """Nor hides what is not: any other group is new, of the same rule too."""
    group = next(iter(VLLM_DEFECTS))

    def document(*results: SeedResult) -> dict[str, Any]:
        return summarize(
            results, excused_groups(None), seeds=range(2), wall_s=1.0, interrupted=False
        )

    assert exit_code(document(failed(0, group))) == ExitCode.OK
    both = document(failed(0, group), failed(1, "wrong-bytes/consumer"))
    assert both["new_groups"] == ["wrong-bytes/consumer"]
    assert exit_code(both) == ExitCode.VIOLATION


def test_junit_has_a_case_for_each_seed(tmp_path: Path) -> None:
    """New failures are failures, known ones are skipped, and dead workers are errors."""
    results = [
        failed(1, "leak/producer"),
        failed(2, "leak/producer", "wrong-bytes/consumer"),
        SeedResult(seed=3, status="error", detail="died"),
        SeedResult(seed=4, status="passed"),
    ]
    write_junit(tmp_path / "j.xml", results, ["leak/producer"], not_run=7)
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()
    counts = [suite.get(key) for key in ("tests", "failures", "errors", "skipped")]
    assert counts == ["5", "1", "1", "2"]
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {
        "seed 1": ["skipped"],
        "seed 2": ["failure"],
        "seed 3": ["error"],
        "seed 4": [],
        "seeds without a result": ["skipped"],
    }
    assert suite[-1][0].get("message") == "not run: 7 seeds"
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message") == "wrong-bytes/consumer"
