"""Runs repeat across processes, and a replay tells why one did not."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults import artifact
from faults.artifact import Artifact
from faults.cli import dispatch
from faults.cli.reexec import HASH_SEED
from faults.identity import versions
from sim.oracles import ORACLES
from sim.router.options import Hold
from sim.run import RunResult, run
from sim.scenario import Scenario, TraceWorkload, UniformWorkload, dumps, load

OTHER_HASH = "0" * 32
OTHER_VLLM = {**versions(), "vllm": "0.32.9"}


def scenario(held_s: float) -> Scenario:
    """Half a second after its prefill the producer gives up on ``req-0``."""
    base = Scenario(
        extra_config={"defer_timeout": 0.5},
        workload=UniformWorkload(
            requests=8, prompt_tokens=(256, 256), output_tokens=(4, 4), interval_ms=250.0
        ),
    )
    return msgspec.structs.replace(
        base,
        engine=msgspec.structs.replace(base.engine, num_blocks=50),
        router=msgspec.structs.replace(base.router, holds=(Hold("req-0", held_s),)),
    )


FAILING, PASSING = scenario(2.5), scenario(0.1)


@pytest.fixture(scope="module")
def results() -> dict[str, RunResult]:
    return {"failing": run(FAILING), "passing": run(PASSING)}


@pytest.fixture
def failing(tmp_path: Path, results: dict[str, RunResult]) -> Path:
    artifact.write(tmp_path / "failing", FAILING, results["failing"], command_line=[])
    return tmp_path / "failing"


@pytest.fixture
def passing(tmp_path: Path, results: dict[str, RunResult]) -> Path:
    artifact.write(tmp_path / "passing", PASSING, results["passing"], command_line=[])
    return tmp_path / "passing"


Replay = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Replay:
    """Run the command with ``--json``; its exit code and document."""

    def command(*arguments: object) -> tuple[int, dict[str, Any]]:
        code = dispatch.run(["replay", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return command


def digest_of(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def rewrite(directory: Path, **changes: Any) -> None:
    """Let the artifact say something else, as if it had been written so."""
    _, document = artifact.read(directory)
    other: Artifact = msgspec.structs.replace(document, **changes).sealed()
    (directory / artifact.ARTIFACT_FILE).write_bytes(msgspec.json.encode(other))


def test_the_same_command_has_one_hash_whatever_the_hash_seed_of_the_shell() -> None:
    """Two processes, PYTHONHASHSEED 0 and 12345: equal hashes, equal documents but for speed."""
    command = [sys.executable, "-m", "faults.cli", "run", "--requests", "3", "--json"]
    command += ["--set", "length_scale=0.02", "--perturb", "--seed", "3"]
    processes = [
        subprocess.Popen(
            command, env={**os.environ, HASH_SEED: seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("0", "12345")
    ]
    documents = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    for document in documents:
        for measured in ("wall_s", "guest_s"):
            del document[measured]
    assert documents[0] == documents[1]


def test_a_failure_is_reproduced(failing: Path, replay: Replay) -> None:
    """The same hash, exit code 1; the directory and each of its files name it."""
    for path in (failing, failing / "scenario.yaml"):
        code, document = replay(path)
        assert (code, document["status"]) == (1, "reproduced")
        assert document["run"]["event_hash"] == document["recorded"]["event_hash"]
        assert document["differences"] == []


def test_a_pass_is_the_same_pass(passing: Path, replay: Replay) -> None:
    """Exit code 0."""
    code, document = replay(passing)
    assert (code, document["status"]) == (0, "same run, passes")


def test_people_are_told_the_status_and_the_hash(
    failing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the summary of the run itself; the last line runs it again."""
    assert dispatch.run(["replay", str(failing)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"faultlab replay {failing}"
    assert f"reproduced: {failing}" in out
    assert "the event hash is the recorded one" in out


def test_another_history_on_the_same_versions_is_the_testbeds_fault(
    failing: Path, replay: Replay
) -> None:
    """Exit code 3, and the first event that went another way."""
    lines = (failing / "events.jsonl").read_text().splitlines()
    event = {**json.loads(lines[3]), "leg": "req-9-p0"}
    (failing / "events.jsonl").write_text("\n".join([*lines[:3], json.dumps(event), *lines[4:]]))
    rewrite(failing, event_hash=OTHER_HASH, events_digest=digest_of(failing / "events.jsonl"))
    code, document = replay(failing)
    assert (code, document["status"]) == (3, "did not reproduce on the same versions")
    assert document["first_divergence"].startswith("event 4: recorded ")
    assert "req-9-p0" in document["first_divergence"]
    assert document["differences"] == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: None, "all records are equal; what differs is the order in which tasks ran"),
        (lambda d: (d / "events.jsonl").unlink(), "cannot be told: events.jsonl cannot be read"),
        (
            lambda d: (d / "events.jsonl").write_bytes(
                b"\n".join((d / "events.jsonl").read_bytes().splitlines()[:5])
            ),
            "cannot be told: events.jsonl was edited after it was written",
        ),
    ],
)
def test_what_differs_is_said_as_well_as_it_can_be(
    passing: Path, replay: Replay, damage: Callable[[Path], object], words: str
) -> None:
    """Equal records, records that are gone, and records that were cut off."""
    damage(passing)
    rewrite(passing, event_hash=OTHER_HASH)
    code, document = replay(passing)
    assert code == 3
    assert words in document["first_divergence"]


@pytest.mark.parametrize(
    ("recorded", "code", "status"),
    [
        ({}, 1, "fails differently, in the same kind of way"),
        ({"signature": ["leak"]}, 125, "fails in another way"),
        ({"signature": [], "verdict": "pass"}, 1, "fails now"),
    ],
)
def test_on_other_versions_a_failure_is_compared_by_kind(
    failing: Path, replay: Replay, recorded: dict[str, Any], code: int, status: str
) -> None:
    """Each version that differs is named; another kind of failure is for bisect to skip."""
    rewrite(failing, event_hash=OTHER_HASH, versions=OTHER_VLLM, **recorded)
    found, document = replay(failing)
    assert (found, document["status"]) == (code, status)
    assert document["differences"] == [f"vllm: recorded with 0.32.9, here {versions()['vllm']}"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_rule_that_is_new_hides_no_failure_from_a_bisection(
    failing: Path, replay: Replay, capsys: pytest.CaptureFixture[str], is_new: bool
) -> None:
    """All recorded rules are broken again, and one more that runs were not judged by then. Had
    they been judged by it, it would be another failure."""
    broken = artifact.read(failing)[1].signature
    more, then = broken[0], broken[1:]
    rules = [name for name in ORACLES if not is_new or name != more]
    rewrite(failing, event_hash=OTHER_HASH, versions=OTHER_VLLM, signature=then, rules=rules)
    code, document = replay(failing)
    assert document["new_rules"] == ([more] if is_new else [])
    assert (code, document["status"]) == (
        (1, "reproduced; also broke rules that the recording did not know")
        if is_new
        else (125, "fails in another way")
    )
    assert dispatch.run(["replay", str(failing)]) == code
    said = f"reproduced; also broke {more}, which the recording did not know: {failing}"
    assert (said in capsys.readouterr().out) is is_new


@pytest.mark.parametrize(
    ("recorded", "status"),
    [
        ({"verdict": "violation", "signature": ["wrong-bytes"]}, "passes now"),
        ({}, "passes, but not in the same way"),
    ],
)
def test_on_other_versions_a_pass_is_a_pass(
    passing: Path, replay: Replay, recorded: dict[str, Any], status: str
) -> None:
    """Exit code 0 either way."""
    rewrite(passing, event_hash=OTHER_HASH, versions=OTHER_VLLM, **recorded)
    code, document = replay(passing)
    assert (code, document["status"]) == (0, status)


def test_the_same_hash_on_other_versions_is_still_reproduced(failing: Path, replay: Replay) -> None:
    """What happened is the same; the other version and sources are named all the same."""
    rewrite(failing, versions=OTHER_VLLM, guest_digest="0" * 16)
    code, document = replay(failing)
    assert (code, document["status"]) == (1, "reproduced")
    vllm, sources = document["differences"]
    assert vllm.startswith("vllm: recorded with 0.32.9")
    assert sources.startswith("sources under test: recorded with 0000")


def test_edited_events_are_told_even_when_nothing_else_differs(
    failing: Path, replay: Replay
) -> None:
    """The hash says that it is the same run; the file no longer tells it."""
    with (failing / "events.jsonl").open("a") as file:
        file.write("{}\n")
    code, document = replay(failing)
    assert (code, document["status"]) == (1, "reproduced")
    assert document["damage"].startswith("events.jsonl was edited")


def test_a_run_with_injected_rules_cannot_be_replayed(failing: Path, replay: Replay) -> None:
    """It would not reproduce, and that would look like a fault of the testbed."""
    rewrite(failing, injected=["my_test.prepare"])
    code, document = replay(failing)
    assert code == 125
    assert "Python code took part in this run (my_test.prepare)" in (document["error"]["message"])


def test_a_run_that_was_cut_short_cannot_be_judged(
    tmp_path: Path, replay: Replay, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a pass nor a failure, when it runs first and when it is replayed."""
    cut = msgspec.structs.replace(PASSING, max_virtual_s=1.0)
    (tmp_path / "cut.yaml").write_text(dumps(cut))
    arguments = ["run", str(tmp_path / "cut.yaml"), "--out", str(tmp_path / "run")]
    assert dispatch.run(arguments) == 2
    shown = capsys.readouterr().out
    assert "never sent: 3 of 8 requests" in shown
    assert "incomplete: no rule was broken as far as the run went" in shown
    code, document = replay(tmp_path / "run")
    assert (code, document["status"]) == (125, "was cut short before all requests were sent")
    assert document["run"]["requests"]["never-sent"] == 3
    assert document["run"]["requests"]["length"] == 5


def test_a_patch_is_tried_by_overlay(failing: Path, replay: Replay, tmp_path: Path) -> None:
    """A connector that keeps the blocks long enough passes, and its sources are named."""
    name = "vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    given = "MoRIIOConstants.DEFAULT_DEFER_TIMEOUT\n            )\n        )"
    assert source.count(given) == 1
    patched = tmp_path.joinpath("overlay", *name.split(".")).with_suffix(".py")
    patched.parent.mkdir(parents=True)
    patched.write_text(source.replace(given, f"{given} + 60.0"))
    code, document = replay(failing, "--overlay", tmp_path / "overlay")
    assert (code, document["status"]) == (0, "passes now")
    (difference,) = document["differences"]
    assert difference.startswith("sources under test: ")


def test_an_artifact_of_an_earlier_version_with_fewer_keys_is_as_it_was(
    failing: Path, replay: Replay
) -> None:
    """Its scenario is known by the keys that there were, and an edited one still is not."""
    path, recorded = failing / "scenario.yaml", failing / "artifact.json"
    text = path.read_text()
    gone = [line for line in text.splitlines() if not re.match(r"( *accelerator|perturb): ", line)]
    assert len(gone) == len(text.splitlines()) - 2
    path.write_text("\n".join(gone))
    document = msgspec.to_builtins(load(path), order="deterministic")
    del document["perturb"], document["engine"]["accelerator"]
    then = hashlib.blake2b(msgspec.json.encode(document), digest_size=16).hexdigest()
    made = msgspec.json.decode(recorded.read_bytes(), type=Artifact)
    old = msgspec.structs.replace(made, scenario_digest=then).sealed()
    recorded.write_bytes(msgspec.json.encode(old))
    assert replay(failing)[0] == 1
    break_scenario(failing)
    assert replay(failing)[0] == 125


def break_scenario(directory: Path) -> None:
    path = directory / "scenario.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 1"))


def break_hash(directory: Path) -> None:
    path = directory / "artifact.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "event_hash": OTHER_HASH}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (break_scenario, "is not the scenario of this artifact"),
        (break_hash, "was edited after it was written"),
        (lambda d: (d / "artifact.json").unlink(), "has no artifact.json"),
    ],
)
def test_an_artifact_that_is_not_as_it_was_cannot_be_run(
    failing: Path, replay: Replay, damage: Callable[[Path], object], words: str
) -> None:
    """Exit code 125, which git bisect skips."""
    damage(failing)
    code, document = replay(failing)
    assert (code, document["exit_code"]) == (125, 125)
    assert words in document["error"]["message"]


def test_a_trace_that_is_gone_cannot_be_run(
    tmp_path: Path, results: dict[str, RunResult], replay: Replay
) -> None:
    """Its path is kept as it was given."""
    gone = msgspec.structs.replace(PASSING, workload=TraceWorkload(str(tmp_path / "gone.jsonl")))
    artifact.write(tmp_path / "run", gone, results["passing"], command_line=[])
    code, document = replay(tmp_path / "run")
    assert code == 125
    assert str(tmp_path / "gone.jsonl") in document["error"]["message"]


@pytest.mark.parametrize("is_of_old", [False, True])
def test_a_trace_that_was_edited_cannot_be_run(
    tmp_path: Path, results: dict[str, RunResult], replay: Replay, is_of_old: bool
) -> None:
    """The testbed is not to blame; an artifact that does not know its trace is run as it is."""
    trace, directory = tmp_path / "t.jsonl", tmp_path / "run"
    line = '{"timestamp": 0, "input_length": 20, "output_length": %d, "hash_ids": [1]}\n'
    trace.write_text(line % 2)
    traced = msgspec.structs.replace(PASSING, router=Scenario().router)
    traced = msgspec.structs.replace(traced, workload=TraceWorkload(str(trace)))
    artifact.write(directory, traced, run(traced), command_line=[])
    assert replay(directory)[0] == 0
    trace.write_text(line % 3)
    if is_of_old:
        rewrite(directory, trace_digest=msgspec.UNSET)
    code, document = replay(directory)
    assert code == (3 if is_of_old else 125)
    if not is_of_old:
        assert f"the trace {trace} was edited or replaced" in document["error"]["message"]


def test_sources_that_do_not_start_cannot_be_judged(
    failing: Path, replay: Replay, tmp_path: Path
) -> None:
    """A commit that does not even import is neither good nor bad."""
    name = "vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common"
    broken = tmp_path.joinpath("overlay", *name.split(".")).with_suffix(".py")
    broken.parent.mkdir(parents=True)
    broken.write_text("raise RuntimeError('half a patch')\n")
    code, document = replay(failing, "--overlay", tmp_path / "overlay")
    assert code == 125
    assert "half a patch" in document["error"]["message"]
