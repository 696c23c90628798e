"""A pool that is too small for the longest request is refused with the size that is enough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode

SHORT = ["--requests", "1", "--set", "length_scale=0.02", "--set", "quiet_phase_s=0"]


def refusal_with(num_blocks: int, options: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of a run that does not start; "" if it does, however it ends."""
    capsys.readouterr()
    pool = ["--set", f"engine.num_blocks={num_blocks}", "--out", f"pool-{num_blocks}"]
    code = dispatch.run(["run", *SHORT, *options, *pool])
    said = " ".join(capsys.readouterr().err.split())
    assert code != ExitCode.TESTBED_FAILED
    assert (code == ExitCode.BAD_USAGE) == ("does not hold the longest request" in said)
    return said if code == ExitCode.BAD_USAGE else ""


@pytest.mark.parametrize(
    "options",
    [
        ["--model", "llama"],
        ["--model", "gemma-swa"],
        ["--model", "qwen-hybrid"],
        ["--model", "glm-flash", "--set", "speculation.method=mtp", "--connector", "hybrid"],
        ["--fault", "disagreement:node=d0,model=gemma-swa"],
    ],
    ids=lambda options: options[1].rpartition("=")[2] + "-disagreeing" * ("fault" in options[0]),
)
def test_the_size_that_is_told_is_the_smallest_that_is_accepted(
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever groups the model of the engine has that has no room; one block less is refused,
    with the same advice."""
    monkeypatch.chdir(tmp_path)
    advice = re.compile(r"vLLM reserves (\d+) blocks.* --set engine\.num_blocks=(\d+), or leave")
    enough = 2
    while told := advice.search(refusal_with(enough, options, capsys)):
        reserved, wanted = (int(number) for number in told.groups())
        assert wanted == reserved + 1 > enough
        enough = wanted
    assert enough > 2
    assert f"engine.num_blocks={enough}," in refusal_with(enough - 1, options, capsys)
