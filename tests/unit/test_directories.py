"""A directory that is given to the wrong command is called what it is, with who takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import artifact
from faults.campaign import store
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.directories import ARTIFACT_FILE, PLAN_FILE, what_is
from sim.errors import UsageError

TAKE_RUNS = "which replay, report, diff, issue, shrink and trace take"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One directory of each kind, with nothing but the files that tell."""
    monkeypatch.chdir(tmp_path)
    for file in (
        f"run/{ARTIFACT_FILE}",
        f"night/{PLAN_FILE}",
        f"night/failures/seed-7/{ARTIFACT_FILE}",
        f"night/failures/seed-3/{ARTIFACT_FILE}",
        f"fresh/{PLAN_FILE}",
        f"both/before/{PLAN_FILE}",
        f"both/after/{PLAN_FILE}",
        f"runs/b/{ARTIFACT_FILE}",
        f"runs/a/{ARTIFACT_FILE}",
        f"shards/1/{PLAN_FILE}",
        f"faultlab-runs/llama-moriio-seed0-3f2a9c01/{ARTIFACT_FILE}",
        "other/notes.txt",
    ):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("{}")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("run", f"is the directory of a run, {TAKE_RUNS}"),
        ("night", "is the directory of a campaign, which report, merge, shrink and --resume take; "
         "it has runs that failed, such as night/failures/seed-3"),
        ("fresh", "is the directory of a campaign, which report, merge, shrink and --resume take"),
        ("both", "is the directory of a comparison, which report takes; its campaigns are in "
         "both/before and both/after"),
        ("runs", "is a directory with runs in it: give one of them, such as runs/a"),
        ("shards", "is a directory with campaigns in it: give one of them, such as shards/1"),
        ("other", "has no artifact.json (of a run) and no campaign.json (of a campaign)"),
        ("other/notes.txt", "is a file"),
        ("gone", "does not exist"),
        ("nigth", "does not exist (did you mean 'night'?)"),
        ("night/failures/seed3", "does not exist (did you mean 'night/failures/seed-3'?)"),
        ("llama-moriio-seed0-3f2a9c1", "does not exist (did you mean "
         "'faultlab-runs/llama-moriio-seed0-3f2a9c01'?)"),
    ],
)  # fmt: skip
def test_every_kind_is_known_by_its_file(path: str, words: str) -> None:
    assert what_is(Path(path)) == words


@pytest.mark.parametrize("path", ["night", "both", "runs", "other", "gone", "other/notes.txt"])
def test_what_is_no_run_is_told_by_all_that_take_one(path: str) -> None:
    with pytest.raises(UsageError) as raised:
        artifact.find(Path(path))
    assert str(raised.value).startswith(f"{path}: {what_is(Path(path))}")
    assert "; expected the directory of a run (for a scenario alone" in str(raised.value)


@pytest.mark.parametrize("path", ["run", "both", "shards", "other", "gone", "other/notes.txt"])
def test_what_is_no_campaign_is_told_by_all_that_take_one(path: str) -> None:
    with pytest.raises(UsageError) as raised:
        store.read(Path(path))
    assert str(raised.value).startswith(
        f"{path}: {what_is(Path(path))}; expected the directory of a campaign"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("replay night", "night: is the directory of a campaign"),
        ("issue night", "such as night/failures/seed-3; expected the directory of a run"),
        ("shrink runs", "runs: is a directory with runs in it: give one of them, such as runs/a"),
        ("diff run both", "artifact.json"),
        ("trace gone", "gone: does not exist; expected"),
        ("merge run", "run: is the directory of a run"),
        ("report shards", "give one of them, such as shards/1; expected the --out of a campaign,"),
        ("report run night", "run: is the directory of a run"),
        ("report gone", "gone: does not exist; expected the --out of a campaign, of a compare or"),
        ("run night", "night: is the directory of a campaign"),
        ("run run/artifact.json", "run/artifact.json: belongs to a recorded run; run it again with "
         "faultlab replay run, or its scenario alone with faultlab run run/scenario.yaml"),
        ("replay nigth", "nigth: does not exist (did you mean 'night'?)"),
        ("diff rum run", "rum: does not exist (did you mean 'run'?)"),
    ],
)  # fmt: skip
def test_every_command_says_so(
    capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    assert dispatch.run(arguments.split()) in (ExitCode.BAD_USAGE, ExitCode.CANNOT_RUN)
    assert words in capsys.readouterr().err
