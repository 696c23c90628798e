"""Prepare the real library for a machine without GPU or NIC: ``prepare()`` once, then run cases.

The released wheel is for CPython 3.10 and is linked with ROCm and other libraries that are not
here. What they would provide is generated: functions that return 0, under the names and symbol
versions that the wheel asks for. Its NIC is ``verbs.c``, its GPU inventory ``rocm.c``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

VERSION = "1.2.4"
PLATFORM = "manylinux_2_35_x86_64"
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD = ROOT / ".mori-cpu"

_STAND_IN_FOR = (
    *("libpci.so.3", "libhsa-runtime64.so.1", "libdrm.so.2", "libdrm_amdgpu.so.1", "libnuma.so.1"),
    *("libamdhip64.so.7", "libprotobuf.so.23", "libgrpc++.so.1", "libgrpc.so.10", "libgpr.so.10"),
)
_SYSTEM = ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2")
_PACKAGES = ("numpy==2.2.6", "pytest==9.0.2", "msgspec==0.20.0")
# The library walks the list of PCI devices, which has to be there, and empty.
_LIBPCI = "static char pci_access[4096]; void *pci_alloc(void) { return pci_access; }"
_IS_DATA = re.compile(r"^_ZT|empty_string|Status2OKE|g_glip|g_core_codegen|kCppTypeToName")


class Unavailable(Exception):
    """The library cannot be prepared here; the text says what is missing and how to get it."""


@dataclass(frozen=True)
class Prepared:
    """How to start the interpreter in which ``mori.io`` can be imported."""

    python: Path
    environment: dict[str, str]


@functools.cache
def prepare(build: Path = BUILD) -> Prepared:
    """Download, build and install what is needed into ``build``, unless it is there.

    Raises:
        Unavailable: no CPython 3.10, no C compiler, no verbs header, or no wheel.
    """
    interpreter = _interpreter()
    _need("gcc", "a C compiler: apt install gcc")
    _need("nm", "nm: apt install binutils")
    with FileLock(build.with_suffix(".lock")):  # test processes prepare it at the same time
        _prepare_once(build, interpreter)
    paths = [ROOT, build / "wheel", HERE / "stand_in"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MORI_")},
        "LD_LIBRARY_PATH": str(build / "lib"),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
    return Prepared(build / "venv/bin/python", environment)


def _prepare_once(build: Path, interpreter: Path) -> None:
    stamp = build / "stamp"
    if stamp.exists() and stamp.read_text() == _fingerprint():
        return
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    _run([interpreter, "-m", "venv", build / "venv"])
    _pip(build, "install", *_PACKAGES)
    _unpack_wheel(build)
    _compile(build)
    stamp.write_text(_fingerprint())


def _interpreter() -> Path:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*sorted(pyenv.glob("3.10.*/bin/python3.10"))]
    on_path = shutil.which("python3.10")
    candidates = [*found, *([Path(on_path)] if on_path else [])]
    for candidate in candidates:
        probe = subprocess.run([candidate, "-c", ""], capture_output=True, check=False)
        if probe.returncode == 0:
            return candidate
    raise Unavailable(
        "needs CPython 3.10, for which the wheel is built: pyenv install 3.10, or put python3.10 "
        "into PATH"
    )


def _need(command: str, what: str) -> None:
    if shutil.which(command) is None:
        raise Unavailable(f"needs {what}")


def _fingerprint() -> str:
    sources = [Path(__file__), *sorted(HERE.glob("*.c"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _run(command: list[str | Path], cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        words = " ".join(map(str, command[:4]))
        raise Unavailable(f"{words} … failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _pip(build: Path, *arguments: str | Path) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    _run([build / "venv/bin/python", "-m", "pip", *arguments, *quiet])


def _unpack_wheel(build: Path) -> None:
    only = ["--no-deps", "--only-binary=:all:", "--python-version=3.10", f"--platform={PLATFORM}"]
    _pip(build, "download", *only, "--dest", build, f"amd-mori=={VERSION}")
    (wheel,) = build.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(build / "wheel")


# ------------------------------------------------------------------ compiling


def _compile(build: Path) -> None:
    library = build / "lib"
    # The verbs provider names this directory as its device's; a PCI address has to be in it.
    (library / "0000:02:00.0/cpu0").mkdir(parents=True)
    shared: list[str | Path] = ["gcc", "-O1", "-shared", "-fPIC"]
    headers = _verbs_headers(build)
    warned: list[str | Path] = [*shared, "-Wall", "-Wextra", "-Werror", *headers]
    _run([*warned, "-o", library / "libibverbs.so.1", HERE / "verbs.c", "-lpthread", "-ldl"])
    _run([*warned, "-o", library / "librocm_smi64.so.1", HERE / "rocm.c"])
    for name in ("libibverbs.so", "librocm_smi64.so"):
        (library / name).symlink_to(f"{name}.1")
    source, versions = _stand_in(build / "wheel/mori")
    (build / "stand_in.c").write_text(source)
    (build / "stand_in.map").write_text(versions)
    by_version = f"-Wl,--version-script={build / 'stand_in.map'}"
    _run([*shared, "-w", by_version, "-o", library / "stand_in.so", build / "stand_in.c"])
    for name in _STAND_IN_FOR:
        (library / name).symlink_to("stand_in.so")


def _verbs_headers(build: Path) -> list[str]:
    if Path("/usr/include/infiniband/verbs.h").exists():
        return []
    try:
        _run(["apt-get", "download", "libibverbs-dev"], cwd=build)
        (package,) = build.glob("libibverbs-dev*.deb")
        _run(["dpkg", "-x", package, build / "headers"])
    except (OSError, ValueError, Unavailable) as error:
        raise Unavailable(
            f"needs infiniband/verbs.h: apt install libibverbs-dev ({error})"
        ) from None
    return [f"-I{build / 'headers/usr/include'}"]


def _stand_in(wheel: Path) -> tuple[str, str]:
    """Source and version script of a library with every symbol that nobody else provides."""
    libraries = sorted(wheel.glob("libmori_*.so"))
    provided = {
        name.partition("@")[0]
        for path in [*libraries, *map(_system_library, _SYSTEM)]
        for name in _symbols(path, "--defined-only")
    }
    wanted = {name for path in libraries for name in _symbols(path, "--undefined-only")}
    lines, versions = [], defaultdict(list)
    for name in sorted(wanted):
        symbol, _, version = name.partition("@")
        if symbol in provided or re.match(r"_?Py|__gmon_start__", symbol):
            continue
        if version:
            versions[version.lstrip("@")].append(symbol)
        if symbol == "pci_alloc":
            lines.append(_LIBPCI)
        elif _IS_DATA.search(symbol):
            lines.append(f"long {symbol}[64];")
        else:
            lines.append(f"long {symbol}(void) {{ return 0; }}")
    nodes = [
        f"{version} {{ global: {'; '.join(symbols)}; }};"
        for version, symbols in sorted(versions.items())
    ]
    return "\n".join(lines) + "\n", "\n".join(nodes) + "\n"


def _system_library(name: str) -> Path:
    return Path(_run(["gcc", f"-print-file-name={name}"]).strip())


def _symbols(path: Path, which: str) -> list[str]:
    return [line.split()[-1] for line in _run(["nm", "-D", which, path]).splitlines()]


if __name__ == "__main__":
    try:
        print(prepare().python)
    except Unavailable as error:
        sys.exit(f"the real library cannot run here: {error}")
