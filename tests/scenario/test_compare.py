"""A planted defect is what a comparison finds, and all that it finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process_pool import InProcessPool

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.mutants.mutant import Mutant

PLANTED = Mutant(
    name="half-read",
    breaks="Only the first half of each read is read.",
    connector="moriio",
    module="vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_engine",
    qualname="MoRIIOWrapper.read_remote_data",
    right="            transfer_size_byte,\n",
    wrong="            [size // 2 for size in transfer_size_byte],\n",
)
SETTINGS = ("workload.requests=3", "extra_config.transfer_timeout=1", "quiet_phase_s=2")

Compare = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def patched(tmp_path: Path) -> str:
    """An overlay as a patched checkout would be one."""
    PLANTED.write(tmp_path / "patch")
    return str(tmp_path / "patch")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    monkeypatch.setattr("faults.cli.compare.Pool", InProcessPool)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        shared = ["compare", "--seeds", "10:13", "--model", "llama", *settings, "--json"]
        capsys.readouterr()  # of commands before
        code = dispatch.run([*shared, *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def groups(document: dict[str, Any], title: str) -> set[str]:
    return {entry["group"] for entry in document[title]}


def test_a_patch_with_a_defect_has_that_defect_as_new(
    compared: Compare, patched: str, tmp_path: Path
) -> None:
    """Nothing else, although the connector has defects of its own on these seeds; the run that
    shows it is kept and fails again. The other way round the defect is fixed."""
    out = tmp_path / "out"
    code, document = compared("--connector", "moriio", "--overlay", patched, "--out", str(out))
    assert code == ExitCode.VIOLATION
    assert groups(document, "new") == {"wrong-bytes/consumer", "same-output"}
    assert document["unchanged"]
    assert document["fixed"] == document["errors"] == []
    (wrong,) = [e for e in document["new"] if e["group"].startswith("wrong-bytes")]
    assert Path(wrong["artifact"]).is_relative_to(out / "after")
    assert dispatch.run(["replay", wrong["artifact"], "--json"]) == ExitCode.VIOLATION
    code, back = compared("--connector", "moriio", "--before-overlay", patched)
    assert code == ExitCode.OK
    assert groups(back, "fixed") == groups(document, "new")
    assert groups(back, "unchanged") == groups(document, "unchanged")
    assert back["new"] == []


def test_two_connectors_are_compared_on_the_same_seeds(compared: Compare) -> None:
    """What vLLM's connector breaks on them the reference does not."""
    code, document = compared("--connector", "moriio", "--connector", "reference")
    assert code == ExitCode.OK
    assert (document["compared"], document["not_run"]) == (3, 0)
    assert document["fixed"]
    assert document["new"] == document["unchanged"] == []
