"""The bundle for machines without a network, without its wheels."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
_PYTHON = """#!/bin/sh
for last; do :; done
case "$*" in
    *"-m venv"*) mkdir -p "$last/bin" "$last/site"; cp "$0" "$last/bin/python";;
    *purelib*) echo "${0%/bin/python}/site"; exit;;
    *"pip list"* | *" list --format=freeze") printf 'torch==1.0+rocm\\nrich==1\\nnumpy==2.4\\n';;
esac
echo "$*" >> "$CALLS"
while [ $# -gt 0 ]; do [ "$1" = --constraint ] && cat "$2" >> "$CALLS"; shift; done; true
"""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "scripts/bundle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle with a file of each kind."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for script in ("install_bundle.sh", "overlay_venv.sh"):
            tar.add(ROOT / "scripts" / script, f"scripts/{script}")
        tar.add(ROOT / "docs/hardware.md", "docs/hardware.md")
    place = tmp_path / "faultlab-abc"
    bundle = load()
    bundle.extract_sources(archive.getvalue(), place)
    (place / "wheels").mkdir()
    (place / "wheels/faultlab-0.1.0-py3-none-any.whl").write_bytes(b"wheel")
    bundle.finish(place, {"commit": "abc", "python": ["3.12"]})
    return place


def install(folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """What the script says, and how it called its Python, which only writes that down."""
    calls, python = folder.parent / "calls", folder.parent / "python"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    calls.write_text("")
    environment = {**os.environ, "PYTHON": str(python), "CALLS": str(calls)}
    script = ["bash", str(folder / "install.sh")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, cwd="/")
    return done, calls.read_text()


def test_a_bundle_installs_without_an_index_and_beside_what_is_there(folder: Path) -> None:
    """Into an environment of its own, in which nothing may hide what drives GPUs and NICs."""
    for _ in range(2):  # again, too
        done, calls = install(folder)
        assert done.returncode == 0, done.stderr
    (line,) = [line for line in calls.splitlines() if " install " in line]
    assert line.startswith("-m pip --python ./venv/bin/python ")
    assert "--no-index --find-links wheels" in line
    assert line.endswith("faultlab pytest")
    constraint = calls.partition(line)[2].split()
    assert constraint == ["torch==1.0+rocm", "numpy==2.4"]


def change(folder: Path) -> None:
    (folder / "wheels/faultlab-0.1.0-py3-none-any.whl").write_bytes(b"Wheel")


def remove(folder: Path) -> None:
    (folder / "source/docs/hardware.md").unlink()


def add(folder: Path) -> None:
    (folder / "wheels/faultlab-0.2.0-py3-none-any.whl").write_bytes(b"newer")


def forge(folder: Path) -> None:
    (folder / "MANIFEST.json").write_text("{}")


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (change, "wheels/faultlab-0.1.0-py3-none-any.whl: FAILED"),
        (remove, "source/docs/hardware.md: FAILED"),
        (forge, "MANIFEST.json: FAILED"),
        (add, "do not belong to the bundle, remove them: ./wheels/faultlab-0.2.0"),
    ],
)
def test_what_was_changed_on_the_way_is_noticed(
    tamper: Callable[[Path], None], said: str, folder: Path
) -> None:
    """Before anything is installed."""
    tamper(folder)
    done, calls = install(folder)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
    assert calls == ""


def test_the_manifest_has_every_file_with_its_hash(folder: Path) -> None:
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    assert manifest["commit"] == "abc"
    assert manifest["wheels"] == ["faultlab-0.1.0-py3-none-any.whl"]
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert set(manifest["files"]) == there - {"MANIFEST.json", "SHA256SUMS"}
    for name, digest in manifest["files"].items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()


def test_the_same_files_make_the_same_tar(folder: Path) -> None:
    """Whatever their times and owners are."""
    bundle = load()
    again = folder.parent / "other" / folder.name
    shutil.copytree(folder, again)
    os.utime(again / "install.sh", (1, 1))
    tars = [folder.parent / "one.tar", folder.parent / "two.tar"]
    for place, packed in zip([folder, again], tars, strict=True):
        bundle.pack(place, packed, 1_700_000_000)
    assert tars[0].read_bytes() == tars[1].read_bytes()
    with tarfile.open(tars[0]) as tar:
        assert tar.getmember(f"{folder.name}/install.sh").mode == 0o755


def test_wheels_are_asked_for_the_machine_that_needs_them() -> None:
    """Not for the one that makes the bundle."""
    arguments = load().download_arguments(Path("wheels"), "3.12")
    for argument in ("--python-version=3.12", "--abi=cp312", "--platform=manylinux_2_28_x86_64"):
        assert argument in arguments
    assert "--only-binary=:all:" in arguments
