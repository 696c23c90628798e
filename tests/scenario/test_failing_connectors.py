"""A connector that raises is reported with the place where it did, wherever it runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from faults.cli import dispatch
from sim.errors import UsageError
from sim.outcome import RunResult
from sim.run import run
from sim.scenario import Scenario, UniformWorkload, with_settings

CONNECTOR = """
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector import MoRIIOConnector


class Failing(MoRIIOConnector):
    def start_load_kv(self, forward_context, **kwargs):
        if ".d0_" in __name__:
            helper(self)
        return super().start_load_kv(forward_context, **kwargs)


class Demanding(MoRIIOConnector):
    def __init__(self, vllm_config, *args, **kwargs):
        vllm_config.kv_transfer_config.kv_connector_extra_config["tariff"]
        super().__init__(vllm_config, *args, **kwargs)


def helper(connector):
    try:
        {}["nothing"]
    except KeyError as error:
        raise ValueError(f"no luck with {connector!r}") from error


class Plain:
    pass
"""
SMALL = Scenario(
    connector="failing_connector:Failing",
    extra_config={"read_mode": "true", "http_port": 8000},
    quiet_phase_s=0.0,
    workload=UniformWorkload(requests=1, prompt_tokens=(60, 60), output_tokens=(3, 3)),
)
PLACE = "failing_connector:22 in helper"


@pytest.fixture(autouse=True)
def _failing_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_connector.py").write_text(CONNECTOR)
    (tmp_path / "raising_connector.py").write_text("1 / 0")
    (tmp_path / "broken_connector.py").write_text("class Broken(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def death(result: RunResult) -> tuple[str, list[str]]:
    """The sentence about the engine that died, and the traceback behind it."""
    (violation,) = [v for v in result.outcome.violations if v.evidence.get("kind") == "engine-died"]
    (record,) = [r for r in result.log.records if r.kind == "engine-died"]
    assert record.fields["traceback"] == violation.evidence["traceback"]
    return violation.detail, violation.evidence["traceback"]


def test_an_engine_that_dies_says_where_its_connector_raised() -> None:
    """Innermost first, through vLLM's own code, with the cause; no path and no address."""
    detail, traceback = death(run(SMALL))
    assert detail.startswith("d0 died: ValueError: no luck with <failing_connector.Failing object")
    assert detail.endswith(f", raised at {PLACE}")
    assert traceback[0] == PLACE
    assert traceback[1] == "failing_connector:8 in Failing.start_load_kv"
    assert traceback[2].startswith("vllm.v1.worker.gpu.kv_connector:")
    assert "caused by KeyError: 'nothing'" in traceback
    assert "0x…" in detail
    assert not any("/" in line or "sim." in line for line in traceback)


def test_the_record_of_it_is_the_same_in_every_run() -> None:
    """Tracebacks enter the event hash."""
    assert run(SMALL).outcome.event_hash == run(SMALL).outcome.event_hash


def test_a_worker_process_that_raises_says_so_too() -> None:
    """vLLM sends only the text of the exception to the engine core."""
    detail, traceback = death(run(with_settings(SMALL, {"executor": "multi-process"})))
    assert detail.startswith("d0 died: RuntimeError: Worker failed with error")
    assert detail.endswith(f", raised at {PLACE}")
    assert PLACE in traceback


def test_the_screen_shows_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that nobody has to open the artifact for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    scenario = tmp_path / "s.json"
    scenario.write_text(json.dumps(msgspec.to_builtins(SMALL)))
    assert dispatch.run(["run", str(scenario)]) == 1
    shown = capsys.readouterr().out
    assert f"\n    {PLACE}" in shown
    assert "\n    failing_connector:8 in Failing.start_load_kv" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"connector": "failing_connector:Faling"}, "no class 'Faling'.*did you mean 'Failing'"),
        ({"connector": "failing_connector:Plain"},
         "'Plain' of module failing_connector is no connector; expected a subclass of vLLM's "
         "KVConnectorBase_V1, of which that module has: Demanding, Failing, MoRIIOConnector$"),
        ({"connector": "json:JSONDecoder"}, "of which that module has: none$"),
        ({"connector": "raising_connector:Any"},
         "ZeroDivisionError: division by zero, raised at raising_connector:1 in <module>$"),
        ({"connector": "broken_connector:Broken"}, r"broken_connector\.py:1: invalid syntax"),
        ({"connector": "nowhere.mod:Cls"}, "nowhere.*put the directory that holds it on PYTHONP"),
        ({"connector": "failing_connector:Demanding"},
         r"KeyError: 'tariff', raised at failing_connector:14 in Demanding.__init__; .*"
         r"--set extra_config\.tariff=VALUE"),
        ({"num_blocks": "2"}, r"2 blocks \(engine.num_blocks\) does not hold the longest request"),
        ({"num_blocks": "1000000000"}, "engine.num_blocks: is 1000000000, expected at most 2"),
        ({"max_num_batched_tokens": "4", "enable_chunked_prefill": "false"},
         r"refused to start: max_num_batched_tokens \(4\) is smaller than [^\[]*$"),
    ],
)  # fmt: skip
def test_what_keeps_an_engine_from_starting_is_said_with_the_remedy(
    changes: dict[str, str], words: str
) -> None:
    """In the words of whoever wrote the scenario: their module, key or limit."""
    with pytest.raises(UsageError, match=words) as caught:
        run(with_settings(SMALL, changes))
    assert "guest." not in str(caught.value)
