from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults import artifact
from sim.errors import UsageError
from sim.run import RunResult, TestBed, run
from sim.scenario import Scenario, UniformWorkload

SCENARIO = Scenario(
    workload=UniformWorkload(requests=1, prompt_tokens=(20, 20), output_tokens=(2, 2))
)


class NoVerdict:
    """A rule that never decides."""

    def judge(self, item: Any) -> None:
        return None


@pytest.fixture(scope="module")
def result() -> RunResult:
    return run(SCENARIO)


@pytest.fixture
def written(tmp_path: Path, result: RunResult) -> Path:
    directory = tmp_path / "runs" / "one"
    artifact.write(directory, SCENARIO, result, command_line=["faultlab", "run"])
    return directory


def test_what_is_written_is_read_back(written: Path, result: RunResult) -> None:
    """The scenario is complete, and the artifact says on which software it ran."""
    scenario, document = artifact.read(written)
    assert scenario == SCENARIO
    assert document.event_hash == result.outcome.event_hash
    assert document.guest_digest == result.guest_digest
    assert document.versions["vllm"]
    assert document.command_line == ["faultlab", "run"]
    events = artifact.read_events(written, document)
    assert len(events) == len(result.log.records)


def test_the_directory_and_each_of_its_files_name_the_artifact(written: Path) -> None:
    """Whatever a person happens to have at hand."""
    assert artifact.find(written) == written
    for name in ("artifact.json", "scenario.yaml", "events.jsonl"):
        assert artifact.find(written / name) == written


def edit(change: Callable[[str], str], name: str) -> Callable[[Path], object]:
    def apply(directory: Path) -> None:
        path = directory / name
        path.write_text(change(path.read_text()))

    return apply


def remove(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).unlink()


def other_hash(text: str) -> str:
    document = json.loads(text)
    return json.dumps({**document, "event_hash": "0" * 32})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (edit(lambda t: t.replace("seed: 0", "seed: 1"), "scenario.yaml"), "not the scenario of"),
        (edit(lambda t: t + "sed: 1\n", "scenario.yaml"), "sed: unknown key"),
        (edit(other_hash, "artifact.json"), "artifact.json: was edited"),
        (
            edit(lambda t: t[:100], "artifact.json"),
            "is cut short; copy the whole directory again, or make the run again with faultlab run",
        ),
        (edit(lambda t: "", "artifact.json"), "artifact.json: is cut short"),
        (edit(lambda t: "[]", "artifact.json"), "is not an artifact of schema version 2"),
        (
            edit(
                lambda t: t.replace('"schema_version": 2', '"schema_version": 1'), "artifact.json"
            ),
            "is not an artifact of schema version 2",
        ),
        (remove("scenario.yaml"), "cannot be read"),
        (remove("artifact.json"), "has no artifact.json"),
    ],
)
def test_damage_is_named_with_its_file(
    written: Path, damage: Callable[[Path], object], words: str
) -> None:
    """Edited, cut off, missing: each has its own words, and none a traceback."""
    damage(written)
    with pytest.raises(UsageError, match=words) as caught:
        artifact.read(artifact.find(written))
    assert str(written) in str(caught.value)


def test_bytes_that_are_no_text_are_no_artifact(written: Path) -> None:
    """Somebody else's file of that name."""
    (written / "artifact.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not an artifact"):
        artifact.read(written)


def test_a_place_that_does_not_exist_is_said_so(tmp_path: Path) -> None:
    """A typing error in the path is the most common mistake."""
    with pytest.raises(UsageError, match="nowhere: does not exist"):
        artifact.find(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (edit(lambda t: t.replace("req-0", "req-9", 1), "events.jsonl"), "was edited after it was"),
        (edit(lambda t: t[:100], "events.jsonl"), "was edited after it was"),
        (remove("events.jsonl"), "cannot be read: No such file"),
    ],
)
def test_damaged_events_are_no_events(
    written: Path, damage: Callable[[Path], object], words: str
) -> None:
    """They only help to explain, so a replay does without; but edited ones explain nothing."""
    damage(written)
    _, document = artifact.read(written)
    with pytest.raises(UsageError, match=words):
        artifact.read_events(written, document)


def test_what_python_code_injected_is_named(tmp_path: Path) -> None:
    """The scenario does not hold it, so nobody must take the artifact for complete."""

    def prepare(bed: TestBed) -> None:
        bed.world.fabric.verdicts.add(NoVerdict())

    artifact.write(tmp_path, SCENARIO, run(SCENARIO, prepare=prepare), command_line=[])
    (code,) = artifact.read(tmp_path)[1].injected
    assert code.startswith("test_artifact.test_what_python_code_injected")


def test_nothing_is_overwritten_without_force(written: Path, result: RunResult) -> None:
    """An empty directory is free; one with anything in it, or a file, is not."""
    (written.parent / "empty").mkdir()
    artifact.check_vacant(written.parent / "empty", force=False)
    with pytest.raises(UsageError, match="--force"):
        artifact.write(written, SCENARIO, result, command_line=[])
    with pytest.raises(UsageError, match="is a file"):
        artifact.check_vacant(written / "artifact.json", force=True)
    with pytest.raises(UsageError, match=r"artifact\.json is no directory that can be written to"):
        artifact.check_vacant(written / "artifact.json" / "below", force=True)
    artifact.write(written, SCENARIO, result, command_line=["again"], force=True)
    assert artifact.read(written)[1].command_line == ["again"]


def test_default_names_tell_the_run_and_never_collide(tmp_path: Path) -> None:
    """A connector's class path becomes something that a file system likes."""
    scenario = Scenario(seed=7, connector="my.package:Class")
    first = artifact.default_directory(scenario, "0123456789", tmp_path)
    assert first.name == "llama-my.package-Class-seed7-01234567"
    first.mkdir()
    second = artifact.default_directory(scenario, "0123456789", tmp_path)
    assert second.name == f"{first.name}-2"
    second.mkdir()
    third = artifact.default_directory(scenario, "0123456789", tmp_path)
    assert third.name == f"{first.name}-3"
