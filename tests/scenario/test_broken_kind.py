"""A kind of fault with a mistake in it: no connector is blamed for that."""

from __future__ import annotations

from typing import Any

import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.kinds.message_dropped import MessageDropped
from sim.verdict import Corrupt


@pytest.mark.parametrize("skip", [0, 2])
def test_a_mistake_in_a_kind_is_an_error_of_the_testbed(
    skip: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever thread of vLLM's sends the message; with 2 it is the producer's listener."""

    def verdict(fault: Any, item: Any, scene: Any) -> Corrupt:
        return Corrupt(lambda frames: frames[99])

    monkeypatch.setattr(MessageDropped, "verdict", verdict)
    settings = ["--connector", "moriio", "--set", "workload.requests=4"]
    fault = f"message-dropped:skip={skip}"
    assert dispatch.run(["run", *settings, "--fault", fault]) == ExitCode.TESTBED_FAILED
    told = capsys.readouterr().err
    assert "IndexError" in told
    assert "test_broken_kind.py:" in told


def test_what_is_no_verdict_is_told_with_its_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And its file: what asks for verdicts knows no kinds."""
    monkeypatch.setattr(MessageDropped, "verdict", lambda fault, item, scene: 5)
    settings = ["--connector", "moriio", "--set", "workload.requests=4"]
    assert dispatch.run(["run", *settings, "--fault", "message-dropped"]) == 3
    assert (
        "faults/kinds/message_dropped.py (MessageDropped): verdict of the kind of fault "
        "'message-dropped' returned 5; expected a verdict of sim/verdict.py, such as Drop(), or "
        "None"
    ) in capsys.readouterr().err
