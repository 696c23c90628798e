"""The arm for two GPUs, as far as it can be run without one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hw_tests.arms import run_beside
from hw_tests.arms.mori_cpu.build import Prepared, Unavailable, prepare
from hw_tests.calibration.measure import Loop
from hw_tests.calibration.rows import Shape
from hw_tests.child import ChildFailed
from hw_tests.conformance import CASES

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "hw_tests/arms/mori_cpu/stand_in"


WITHOUT_ROCM = pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may lack nothing")


def pytest_on_rocm(
    python: Path, environment: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--arm", "rocm"]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**environment},
        capture_output=True,
        text=True,
        check=False,
    )


def prepared() -> Prepared:
    try:
        return prepare()
    except Unavailable as error:
        pytest.skip(str(error))


def lacks_everything(done: subprocess.CompletedProcess[str]) -> None:
    """No case runs, nothing is skipped, and each missing thing is told with its remedy."""
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ("ROCm", "mori", "vLLM", "connector", "GPU architecture", "GPU devices"):
        assert f"MISSING: {name}: found " in done.stdout
    for name in ("GPU visibility", "RDMA links", "verbs devices", "NIC affinity"):
        assert f"MISSING: {name}: found " in done.stdout
    missing = done.stdout.count("MISSING: ")
    assert done.stdout.count("    fix: ") == missing


@WITHOUT_ROCM
def test_without_rocm_the_preflight_fails_with_all_that_is_missing() -> None:
    # An interpreter in which neither torch nor vLLM is there to be imported, which takes seconds.
    paths = os.pathsep.join([str(ROOT), str(STAND_IN)])
    narrowed = ["hw_tests", "-k", "ports"]
    done = pytest_on_rocm(prepared().python, {**os.environ, "PYTHONPATH": paths}, *narrowed)
    lacks_everything(done)
    assert "unverified on hardware" in done.stdout


@WITHOUT_ROCM
@pytest.mark.soak
@pytest.mark.parametrize("what", ["hw_tests", "hw_tests/test_conformance.py"])
def test_a_laptop_lacks_it_too(what: str) -> None:
    """With torch and vLLM of a CPU."""
    lacks_everything(pytest_on_rocm(Path(sys.executable), os.environ, what))


@pytest.mark.parametrize(
    "name",
    [
        "1.6-reads_and_writes_move_the_bytes_they_name",
        "1.8-all_bytes_are_there_when_a_status_succeeds-gpu-rdma",
        "2.6-workers_do_not_merge_chunks_of_gpu_memory",
    ],
)
def test_the_arm_makes_pairs_of_the_real_library(name: str) -> None:
    """With a stand-in for GPU memory. Without counters in its NIC the last gets that far only."""
    here = prepared()
    (case,) = [case for case in CASES if case.name == name]
    if "counts" not in case.needs:
        run_beside("rocm", case, here.python, here.environment)
        return
    with pytest.raises(ChildFailed, match="has no attribute 'posted'"):
        run_beside("rocm", case, here.python, here.environment)


def test_the_arm_times_transfers_of_the_real_library() -> None:
    """A calibration's process, with a stand-in for GPU memory: a latency for each shape."""
    here = prepared()
    shapes = [Shape("rdma", "read", 1024, 8, 2), Shape("rdma", "write", 4096, 8, 2, calls=2)]
    asked = [Loop(memory="gpu"), [dataclasses.asdict(shape) for shape in shapes]]
    done = subprocess.run(
        [str(here.python), "-m", "hw_tests.calibration.measure", "rocm"],
        input=json.dumps(asked),
        env=here.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    latencies = json.loads(done.stdout.splitlines()[-1])
    assert len(latencies) == 2
    assert min(latencies) > 0
