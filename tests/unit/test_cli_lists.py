from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.moriio import moriio_common

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.connector_settings import settings_of
from faults.fault import EVENTS
from faults.kinds import KINDS
from sim.engine.connectors import CONNECTORS
from sim.lifecycle import PHASES
from sim.model.presets import PRESETS
from sim.oracles import ORACLES
from sim.scenario import GeneratedWorkload, Scenario, load

LISTS = [("models", PRESETS), ("connectors", CONNECTORS), ("oracles", ORACLES)]


@pytest.mark.parametrize(("command", "known"), LISTS)
def test_a_list_shows_everything_there_is(
    capsys: pytest.CaptureFixture[str], command: str, known: dict[str, object]
) -> None:
    """For people and for scripts alike, in the same order."""
    assert dispatch.run([command]) == ExitCode.OK
    table = capsys.readouterr().out
    assert all(name in table for name in known)
    assert dispatch.run([command, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in document[command]] == list(known)


def test_names_of_kinds_are_whole_on_a_narrow_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what is typed; what the kinds do is folded instead."""
    monkeypatch.setenv("COLUMNS", "60")
    assert dispatch.run(["faults"]) == ExitCode.OK
    table = capsys.readouterr().out
    assert all(f" {name} " in table for name in KINDS)
    assert max(map(len, table.splitlines())) <= 60


def test_lists_tell_parameters_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """What a rule or a connector is set to, without reading its source."""
    dispatch.run(["oracles", "--json"])
    oracles = {o["name"]: o for o in json.loads(capsys.readouterr().out)["oracles"]}
    assert oracles["bounded-waiting"]["parameters"] == {"transfer_timeout_s": 30.0, "margin_s": 5.0}
    dispatch.run(["connectors", "--json"])
    (moriio, *_) = json.loads(capsys.readouterr().out)["connectors"]
    assert moriio["extra_config"]["read_mode"] == "true"
    dispatch.run(["models", "--json"])
    models = {m["name"]: m for m in json.loads(capsys.readouterr().out)["models"]}
    assert models["llama"]["geometries"]["real"]["bytes_per_token"] == 131_072


def test_the_settings_of_moriio_are_those_that_it_reads() -> None:
    """Its keys, and the defaults of its time-outs, from the installed sources."""
    folder = Path(moriio_common.__file__).parent
    text = "".join(path.read_text() for path in sorted(folder.glob("*.py")))
    keys = {key.name: key for key in settings_of("moriio")}
    read = set(re.findall(r"extra_config(?:\.get\(\s*|\[\s*)\"(\w+)\"", text))
    assert read == set(keys)
    for name in ("transfer_timeout", "defer_timeout", "recv_abort_timeout"):
        default = getattr(moriio_common.MoRIIOConstants, f"DEFAULT_{name.upper()}")
        assert keys[name].default == default


def test_connectors_are_shown_with_keys_defaults_and_units(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One setting a line, on an ordinary screen too."""
    monkeypatch.setenv("COLUMNS", "80")
    dispatch.run(["connectors"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for line in (
        ["renewal_timeout", "600", "s"],
        ["verify_reads", "off"],
        ["recv_abort_timeout", "120", "s"],
        ["read_mode", "true", "given", "here,", "not", "false"],
    ):
        assert line in lines


@pytest.mark.parametrize("command", ["models", "connectors", "oracles", "faults", "doctor"])
def test_a_narrow_screen_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Cells are folded; every word of a wide table is there in the narrow one."""

    def words(columns: str) -> str:
        monkeypatch.setenv("COLUMNS", columns)
        dispatch.run([command])
        shown = capsys.readouterr().out
        assert "…" not in shown
        return "".join(sorted(c for c in shown if c.isalnum()))

    assert words("60") == words("400")


def test_what_goes_into_a_pipe_is_neither_wrapped_nor_padded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is a line, however long, for grep and diff."""
    monkeypatch.delenv("COLUMNS", raising=False)
    dispatch.run(["oracles"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    summaries = [oracle.summary for oracle in ORACLES.values()]
    assert [s for s in summaries if not any(s in line for line in lines)] == []


def test_a_scenario_to_start_from_runs_as_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It holds defaults, apart from its workload, so that reading it teaches them."""
    file = tmp_path / "scenario.yaml"
    assert dispatch.run(["init", str(file)]) == ExitCode.OK
    assert f"faultlab run {file}" in capsys.readouterr().out
    workload = GeneratedWorkload(requests=20, length_scale=0.1)
    assert load(file) == Scenario(workload=workload)
    assert file.read_text().count("#") > 20
    file.write_text("mine")
    assert dispatch.run(["init", str(file)]) == ExitCode.BAD_USAGE
    assert file.read_text() == "mine"
    assert dispatch.run(["init", str(file), "--force"]) == ExitCode.OK
    assert dispatch.run(["init", str(tmp_path / "no" / "where")]) == ExitCode.BAD_USAGE
    assert dispatch.run(["init", str(tmp_path), "--force"]) == ExitCode.BAD_USAGE
    assert "is a directory; name a file in it" in " ".join(capsys.readouterr().err.split())


def test_the_schema_knows_every_key_and_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """For editors; unknown keys are errors there as well."""
    assert dispatch.run(["schema"]) == ExitCode.OK
    schema = json.loads(capsys.readouterr().out)
    scenario = schema["$defs"]["Scenario"]
    assert schema["$ref"] == "#/$defs/Scenario"
    assert list(scenario["properties"]) == list(Scenario.__struct_fields__)
    assert scenario["additionalProperties"] is False
    assert schema["$defs"]["EngineOptions"]["properties"]["tp_size"]["minimum"] == 1


def test_faults_say_when_they_can_strike_without_marks_of_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every key of a trigger and what it can be; summaries are words, not source."""
    dispatch.run(["faults"])
    shown = capsys.readouterr().out
    assert "``" not in shown
    for words in ("at_s=", "phase=", "event=", "nth=", "during=", *PHASES, *EVENTS):
        assert words in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--model", "lama"], "did you mean 'llama'"),
        (["run", "late-handoff"], "did you mean 'late-hand-off'"),
        (["frobnicate"], "there are: run, campaign"),
        (["run", "--requests", "0"], "--requests 0: expected at least 1"),
        (["run", "--set", "num_blocks=1"], "engine.num_blocks: is 1, expected at least 2"),
    ],
)
def test_what_was_meant_is_guessed_or_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Names that are nearly right, and numbers that are not."""
    assert dispatch.run(arguments) == ExitCode.BAD_USAGE
    assert words in capsys.readouterr().err
