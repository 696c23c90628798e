"""A bundle is made, and installed and used where there is no network."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
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


def test_a_bundle_installs_and_runs_without_a_network(tmp_path: Path) -> None:
    """Into an empty environment; then, with this one's torch and vLLM, a case on the simulator."""
    if subprocess.run([*OFFLINE, "true"], capture_output=True).returncode:
        pytest.skip("unshare may not cut off the network on this machine; run it as root")
    version = f"--python={sys.version_info[0]}.{sys.version_info[1]}"
    made = [sys.executable, str(ROOT / "scripts/bundle.py"), version, f"--out={tmp_path}"]
    subprocess.run(made, check=True)
    (packed,) = tmp_path.glob("*.tar")
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path, filter="data")
    bundle = packed.with_suffix("")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin/python")

    done = offline(["bash", "install.sh"], bundle, PYTHON=python)
    assert done.returncode == 0, done.stdout + done.stderr
    assert offline([f"{venv}/bin/faultlab", "--help"], tmp_path).returncode == 0
    doctor = offline([f"{venv}/bin/faultlab", "doctor"], tmp_path)
    assert doctor.returncode == 2
    assert "torch" in doctor.stdout

    (site,) = venv.glob("lib/python*/site-packages")
    (site / "image.pth").write_text(sysconfig.get_path("purelib"))
    case = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "hw_tests/test_conformance.py"]
    done = offline([python, *case, "-k", "engine_descriptor"], bundle / "source")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    run = offline([f"{venv}/bin/faultlab", "run", "--requests", "2"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2: 2 length" in run.stdout
