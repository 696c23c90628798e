"""What a result depends on besides scenario and seed: interpreter, libraries, our own code."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import sim

_SIMULATOR = Path(sim.__file__).parent
_HERE = Path(__file__).parent
INJECTING = (
    "fault.py",
    "item_fault.py",
    "kinds/",
    "message_fault.py",
    "nemesis.py",
    "overlaps.py",
    "running.py",
    "scene.py",
    "schedule.py",
)
"""What of this package can change a run; the rest draws scenarios, or tells of runs."""

_LIBRARIES = ("vllm", "torch", "numpy", "simpy", "greenlet", "msgspec", "pyzmq")


@cache
def versions() -> dict[str, str]:
    """Versions by name; ``faultlab`` is a hash over the sources of the simulator and its faults."""
    found = {"python": platform.python_version(), "faultlab": run_digest(_SIMULATOR, _HERE)}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def differences(recorded: dict[str, str]) -> list[str]:
    """Sentences about every version that differs from ``recorded``."""
    current = versions()
    return [
        f"{name}: recorded with {recorded.get(name, 'none')}, here {current.get(name, 'none')}"
        for name in sorted({*recorded, *current})
        if recorded.get(name) != current.get(name)
    ]


def run_digest(simulator: Path, faults: Path) -> str:
    """Hash of what can change a run: all of the simulator, and what injects faults into it."""
    found = {f"sim/{name}": path for name, path in _sources(simulator).items()}
    injecting = {f"faults/{name}": path for name, path in _sources(faults).items()}
    parts = tuple(f"faults/{part}" for part in INJECTING)
    found |= {name: path for name, path in injecting.items() if name.startswith(parts)}
    return _digest(found)


def source_digest(root: Path) -> str:
    """Hash of the Python files below ``root``, and of their names."""
    return _digest(_sources(root))


def _sources(root: Path) -> dict[str, Path]:
    return {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}


def _digest(files: Mapping[str, Path]) -> str:
    total = hashlib.blake2b(digest_size=8)
    for name, path in sorted(files.items()):
        total.update(name.encode())
        total.update(path.read_bytes())
    return total.hexdigest()
