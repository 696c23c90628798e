from __future__ import annotations

import json

import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from sim.engine.connectors import CONNECTORS
from sim.model.presets import PRESETS
from sim.oracles import ORACLES

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
