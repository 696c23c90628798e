"""The late hand-off: the producer reuses blocks that the consumer has still to read."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import Any

import pytest

from faults.cli import dispatch
from faults.cli.options import RunOptions, build_scenario
from sim.run import run


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of the shipped scenario, as the command line gives it."""
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(screen):
        patch.chdir(tmp_path_factory.mktemp("late"))
        code = dispatch.run(["run", "late-hand-off", "--json"])
    return {"exit_code": code, **json.loads(screen.getvalue())}


def of(document: dict[str, Any], oracle: str) -> list[dict[str, Any]]:
    return [v for v in document["violations"] if v["oracle"] == oracle]


def test_the_consumer_reads_another_requests_bytes(document: dict[str, Any]) -> None:
    """Exit code 1; the finding names layers, blocks, tokens and whose bytes were read."""
    assert document["exit_code"] == 1
    first, *_ = of(document, "wrong-bytes")
    assert first["request_id"] == "late-d0"
    assert first["node"] == "d0"
    extent = first["evidence"]["extent"]
    assert extent["layers"] == [f"model.layers.{i}.self_attn.attn" for i in range(4)]
    assert len(extent["block_ids"]) == 32
    assert extent["tokens"] == [0, 510]
    assert extent["owners"]
    assert all(owner.startswith("next-") for owner in extent["owners"])
    assert "layer model.layers.0" in first["detail"]
    assert "tokens " in first["detail"]
    assert f"found the bytes of {extent['owners'][0]}" in first["detail"]


def test_the_producer_gave_the_blocks_up_after_its_own_minute(document: dict[str, Any]) -> None:
    """It is vLLM's default of 60 s that passes, not a setting of the scenario."""
    assert document["scenario"]["extra_config"] == {}
    (stale,) = of(document, "use-after-free")
    assert stale["evidence"]["kind"] == "stale-read"
    assert stale["evidence"]["source_node"] == "p0"
    assert 65.0 < stale["time_s"] < 66.0
    assert re.search(r"p0 let go of late-p0 at 61\.\d+ s", stale["detail"])


def test_the_client_got_other_tokens_and_nobody_noticed(document: dict[str, Any]) -> None:
    """The request ends as if all were well; every other request is served rightly."""
    assert document["requests"]["length"] == document["requests"]["total"]
    assert [v["request_id"] for v in of(document, "same-output")] == ["late"]


def test_without_the_delay_the_same_requests_pass() -> None:
    """So it is the late hand-off that does it."""
    outcome = run(build_scenario(RunOptions(scenario="late-hand-off", holds=("late=0",)))).outcome
    assert outcome.passed
    assert outcome.requests == {"total": 6, "length": 6, "unfinished": 0}
