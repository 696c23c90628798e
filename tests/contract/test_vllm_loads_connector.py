"""vLLM itself loads the connector out of tree and runs it, without the simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("vllm_halves.py")


@pytest.mark.parametrize(
    ("model", "load_mode", "num_groups"),
    [("llama", "sync", 1), ("kimi-linear", "async", 4), ("glm-flash", "async", 5)],
)
def test_vllms_factory_makes_both_halves_and_they_serve_a_request(
    model: str, load_mode: str, num_groups: int
) -> None:
    """From the three keys of the configuration alone: prefill, hand-over, load, decode, release.
    Every layer's bytes are the producer's, and both engines have all their blocks back."""
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), model, "300", load_mode],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["classes"] == ["HybridReadConnector"] * 4
    assert seen["module"] == "connector.hybrid"
    assert (seen["reason"], seen["tokens"]) == ("length", 2)
    assert len(seen["payload"]) == num_groups
    assert seen["held"] > 0
    assert seen["free"]
    assert set(seen["same_bytes"].values()) == {True}, seen["same_bytes"]
