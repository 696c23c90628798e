"""Reads the facts about this machine that decide what can run on it; judges nothing.

Versions come from package metadata: importing torch or vLLM to ask them would take seconds and
fail exactly when the answer matters.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from faults.cli.reexec import CALLER_HASH_SEED

DeviceAccess = Literal["absent", "no permission", "usable"]
PACKAGES = ("torch", "vllm", "simpy", "greenlet", "numpy", "msgspec", "amd-mori", "mori")

ENTRY_POINTS = {
    "faultlab command": ("console_scripts", "faults.cli"),
    "pytest plugin": ("pytest11", "faults.pytest_plugin"),
}
"""What an installation of this source tree registers: group, and module or its beginning."""

_REQUIREMENTS = Path(__file__).parents[1] / "requirements" / "cpu.txt"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Machine:
    """What was found. ``pins`` and ``installed`` map package names to versions, ``entry_points``
    the names in ENTRY_POINTS to whether this environment has them."""

    python: tuple[int, int, int]
    installed: Mapping[str, str]
    pins: Mapping[str, str]
    hash_seed_fixed: bool
    caller_hash_seed: str
    mori_importable: bool
    kfd: DeviceAccess
    gpus: int
    hardware_test_files: int
    entry_points: Mapping[str, bool]
    memory_bytes: int
    cores: int


def probe() -> Machine:
    """Look at this process and this machine."""
    pins = read_pins(_REQUIREMENTS.read_text()) if _REQUIREMENTS.exists() else {}
    return Machine(
        python=sys.version_info[:3],
        installed=_installed_versions([*PACKAGES, *pins]),
        pins=pins,
        hash_seed_fixed=not sys.flags.hash_randomization,
        caller_hash_seed=os.environ.get(CALLER_HASH_SEED, "random"),
        mori_importable=util.find_spec("mori") is not None,
        kfd=_device_access(Path("/dev/kfd")),
        gpus=len(list(Path("/dev/dri").glob("renderD*"))),
        hardware_test_files=_hardware_test_files(),
        entry_points={name: _is_registered(*where) for name, where in ENTRY_POINTS.items()},
        memory_bytes=_memory_bytes(),
        cores=_cores(),
    )


def read_pins(requirements: str) -> dict[str, str]:
    """Return the ``name==version`` lines of a requirements file as a mapping."""
    lines = re.findall(r"^([\w.-]+)==([^\s#]+)", requirements, flags=re.MULTILINE)
    return dict(lines)


def _installed_versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _is_registered(group: str, module: str) -> bool:
    entries = metadata.entry_points(group=group, name="faultlab")
    return any(entry.value.startswith(module) for entry in entries)


def _device_access(device: Path) -> DeviceAccess:
    if not device.exists():
        return "absent"
    return "usable" if os.access(device, os.R_OK | os.W_OK) else "no permission"


def _hardware_test_files() -> int:
    spec = util.find_spec("hw_tests")
    folders = spec.submodule_search_locations if spec is not None else None
    return sum(len(list(Path(folder).rglob("test_*.py"))) for folder in folders or ())


def _cores() -> int:
    """Return how many cores this process may use; macOS cannot say, so there it is all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    """Return the memory this process may use: the machine's, or its container's limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.exists() else "max"
    return machine if limit == "max" else min(machine, int(limit))
