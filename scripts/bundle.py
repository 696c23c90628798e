"""Writes one tar with which faultlab is installed where there is no network.

``make bundle``, or ``python scripts/bundle.py --python 3.12 --with-mori --out dist``. In it are the
sources of the commit that is checked out (scenarios, docs and hardware tests among them), wheels of
faultlab and of what it needs, ``install.sh``, ``MANIFEST.json`` and ``SHA256SUMS``. torch and vLLM
are not: the machine's own are used and stay as they are. Needs git, pip and a network.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MORI = "amd-mori>=1.2.4,<2"
TESTS = "pytest>=8.3"  # the hardware tests run by it
# Newer ones do not stand for older ones when pip is asked for another machine's wheels.
GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
MORI_GLIBC = ("2_39", "2_35")  # of its wheels for Python 3.12 and 3.10


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    versions = options.python or ["3.12"]
    commit, seconds = _git("show", "-s", "--format=%H %ct", "HEAD").decode().split()
    name = f"faultlab-{commit[:12]}"
    if _git("status", "--porcelain"):
        print("bundle: what is not committed is left out", file=sys.stderr)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        extract_sources(_git("archive", "--format=tar", "HEAD"), folder)
        fetch_wheels(folder, versions, options.with_mori)
        finish(folder, {"commit": commit, "python": versions})
        options.out.mkdir(parents=True, exist_ok=True)
        packed = options.out / f"{name}.tar"
        pack(folder, packed, int(seconds))
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    packed.with_suffix(".tar.sha256").write_text(f"{digest}  {packed.name}\n")
    print(f"{digest}  {packed}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bundle.py", description=__doc__)
    parser.add_argument(
        "--python", action="append", help="for this version (default: 3.12); may be repeated"
    )
    parser.add_argument("--with-mori", action="store_true", help="add the wheel of amd-mori")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    return parser


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def extract_sources(archive: bytes, folder: Path) -> None:
    """Into ``source``, and the script that installs beside it."""
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(source, filter="data")
    shutil.copy(source / "scripts/install_bundle.sh", folder / "install.sh")


def fetch_wheels(folder: Path, versions: Sequence[str], with_mori: bool) -> None:
    """Into ``wheels``: faultlab's own, and for each version of Python what it needs."""
    wheels, source = folder / "wheels", folder / "source"
    _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(source))
    shutil.rmtree(source / "build", ignore_errors=True)
    for leftover in source.glob("*.egg-info"):
        shutil.rmtree(leftover)
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    for version in versions:
        _pip(*download_arguments(wheels, version), *project["dependencies"], TESTS)
        if with_mori:
            _pip(*download_arguments(wheels, version, MORI_GLIBC), "--no-deps", MORI)


def download_arguments(wheels: Path, version: str, glibc: Sequence[str] = GLIBC) -> list[str]:
    """Of pip, for a machine that may be another than this one."""
    abi = f"cp{version.replace('.', '')}"
    arguments = ["download", "--only-binary=:all:", "--dest", str(wheels)]
    arguments += [f"--python-version={version}", "--implementation=cp"]
    arguments += [f"--abi={each}" for each in (abi, "abi3", "none")]
    platforms = [*(f"manylinux_{each}" for each in glibc), "manylinux2014"]
    return arguments + [f"--platform={platform}_x86_64" for platform in platforms]


def _pip(*arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    done = subprocess.run([sys.executable, "-m", "pip", *arguments, *quiet])
    if done.returncode:
        sys.exit(f"bundle: pip {' '.join(arguments)}: failed, for the reason above")


def finish(folder: Path, facts: dict[str, Any]) -> None:
    """Write ``MANIFEST.json``, and ``SHA256SUMS``, which covers it, too."""
    files = _hashes(folder)
    wheels = sorted(name.partition("/")[2] for name in files if name.startswith("wheels/"))
    document = {"schema_version": 1, **facts, "wheels": wheels, "files": files}
    (folder / "MANIFEST.json").write_text(json.dumps(document, indent=1) + "\n")
    sums = "".join(f"{digest}  ./{name}\n" for name, digest in _hashes(folder).items())
    (folder / "SHA256SUMS").write_text(sums)


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def pack(folder: Path, packed: Path, seconds: int) -> None:
    """The same files give the same bytes, whoever packs them and when."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = seconds
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(packed, "w") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder.parent), recursive=False, filter=plain)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
