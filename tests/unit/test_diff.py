from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode

SMALL = ["run", "--requests", "3", "--set", "length_scale=0.02"]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def diff(capsys: pytest.CaptureFixture[str], a: str, b: str) -> tuple[dict[str, Any], str]:
    """The document, and what people see of it."""
    capsys.readouterr()
    assert dispatch.run(["diff", a, b, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert dispatch.run(["diff", a, b]) == ExitCode.OK
    return document, " ".join(capsys.readouterr().out.split())


def test_a_fault_parts_two_runs_where_it_strikes(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything before is equal, and the story of the request is told on both sides."""
    fault = ["--fault", "hand-off-lost:request=req-1"]
    dispatch.run([*SMALL, "--out", "a"])
    dispatch.run([*SMALL, *fault, "--out", "b"])
    document, text = diff(capsys, "a", "b")
    assert document["same"] is False
    assert [line.partition(":")[0] for line in document["given"]] == ["faults"]
    assert document["parting"]["b"].startswith("fault-hit")
    (ended,) = document["ends"].items()
    assert ended[0] == "req-1"
    assert [outcome.partition(" ")[0] for outcome in ended[1]] == ["length", "hand-off-lost"]
    for side in "ab":
        told = [moment["text"] for moment in document[side]["story"]]
        assert any("req-1" in line for line in told)
        assert not any("req-2" in line for line in told)
    for words in ("first difference", "how it came about in A", "how it came about in B"):
        assert words in text


def test_a_run_that_passes_is_told_of_the_requests_that_the_other_is_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Here of the one that the fault struck, and of the one that suffers from it in the end."""
    dispatch.run([*SMALL, "--out", "a"])
    dispatch.run([*SMALL, "--fault", "completion-error:request=req-1", "--out", "b"])
    document, _ = diff(capsys, "a", "b")
    assert [document[side]["verdict"] for side in "ab"] == ["pass", "violation"]
    for side in "ab":
        told = " ".join(moment["text"] for moment in document[side]["story"])
        assert "req-1-d0" in told
        assert "epilogue-d0" in told


def test_of_two_connectors_only_what_both_have_is_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their messages differ from the first on, which tells nothing."""
    for connector in ("hybrid", "reference"):
        dispatch.run([*SMALL, "--connector", connector, "--out", connector])
    document, _ = diff(capsys, "hybrid", "reference")
    assert 'connector: "hybrid" and "reference"' in document["given"]
    kinds = [document["parting"][side].partition(" ")[0] for side in "ab"]
    assert not {"message-sent", "posted", "control-plane-exchange"} & set(kinds)
    assert document["parting"]["before"]


def test_a_run_is_the_same_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """To the order of tasks; and what is no run is refused by name."""
    dispatch.run([*SMALL, "--out", "a"])
    document, text = diff(capsys, "a", "a")
    assert (document["same"], document["parting"], document["given"]) == (True, None, [])
    assert "the same history" in text
    assert dispatch.run(["diff", "a", "nowhere"]) == ExitCode.BAD_USAGE
    assert "nowhere: does not exist" in capsys.readouterr().err
