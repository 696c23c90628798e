"""A bundle is made, and installed and used where there is no network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[2]
OFFLINE = ["unshare", "--net", "--map-root-user"]


def offline(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in a namespace that has no network at all."""
    env = ["env", "-i", "PATH=/usr/bin:/bin", *(f"{k}={v}" for k, v in environment.items())]
    return subprocess.run([*OFFLINE, *env, *command], cwd=cwd, capture_output=True, text=True)


def installed(python: str) -> str:
    command = [python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_bundle_installs_and_runs_without_a_network(tmp_path: Path) -> None:
    """Into an empty environment; then beside torch and vLLM, and a case on the simulator."""
    if subprocess.run([*OFFLINE, "true"], capture_output=True).returncode:
        pytest.skip("unshare may not cut off the network on this machine; run it as root")
    version = f"--python={sys.version_info[0]}.{sys.version_info[1]}"
    made = [sys.executable, str(ROOT / "scripts/bundle.py"), version, f"--out={tmp_path}"]
    subprocess.run(made, check=True)
    (packed,) = tmp_path.glob("*.tar")
    summed = packed.with_suffix(".tar.sha256").name
    subprocess.run(["sha256sum", "-c", summed], cwd=tmp_path, check=True)
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path, filter="data")
    bundle = packed.with_suffix("")
    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", str(empty)], check=True)
    done = offline(["bash", "install.sh"], bundle, PYTHON=f"{empty}/bin/python")
    assert done.returncode == 0, done.stdout + done.stderr
    faultlab = str(bundle / "venv/bin/faultlab")
    assert offline([faultlab, "--help"], tmp_path).returncode == 0
    doctor = offline([faultlab, "doctor"], tmp_path)
    assert doctor.returncode == 2
    assert "torch" in doctor.stdout

    before = installed(sys.executable)
    beside = tmp_path / "beside"
    done = offline(["bash", "install.sh"], bundle, PYTHON=sys.executable, VENV=str(beside))
    assert done.returncode == 0, done.stdout + done.stderr
    assert installed(sys.executable) == before
    python = str(beside / "bin/python")
    case = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "hw_tests/test_conformance.py"]
    done = offline([python, *case, "-k", "engine_descriptor"], bundle / "source")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    run = offline([python, "-m", "faults.cli", "run", "--requests", "2"], bundle / "source")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2: 2 length" in run.stdout
