"""What a host is: versions of everything that decides, hashes of the sources, and the preflight."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from hw_tests.preflight import Host, examine

PACKAGES = ("torch", "vllm", "amd-mori", "mori", "msgspec", "numpy", "pyzmq", "greenlet", "simpy")
SETTINGS = "pyproject.toml"
"""Of the source tree, with those of pytest."""
SOURCES = ("connector", "hw_tests", "sim", SETTINGS)
_SETTINGS = Path(__file__).parents[2] / SETTINGS
_VARIABLES = ("MORI_", "VLLM_", "HIP_", "HSA_", "ROCR_", "ROCM_", "AMD_", "GPU_", "CUDA_", "TORCH_",
              "PYTORCH_", "NCCL_", "RCCL_", "LD_", "PYTHON", "PYTEST_", "FAULTLAB_")  # fmt: skip
"""How those of the environment begin that can change what is tested."""
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSW")
"""What their names have whose values are nobody's but their owner's, as VLLM_API_KEY."""
LIBRARIES = ("mori", "vllm")
_SAME = ("python", "rocm", "packages", "libraries", "sources")
_VERSIONS = ("python", "packages")
_ROCM = Path("/opt", "rocm", ".info", "version")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_AMDGPU = Path("/sys/module/amdgpu/version")
_NICS = Path("/sys/class/infiniband")


def facts_of(arm: str) -> dict[str, Any]:
    """Of this machine, for JSON; what is not installed is None.

    Args:
        arm: with ``rocm`` the preflight is run, too.
    """
    return {
        "host": socket.gethostname(),
        "boot": _text(_BOOT),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "rocm": _text(_ROCM),
        "amdgpu": _text(_AMDGPU),
        "nics": {
            nic.name: f"{_text(nic / 'hca_type')}, firmware {_text(nic / 'fw_ver')}"
            for nic in sorted(_NICS.glob("*"))
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "sources": {name: _digest(name) for name in SOURCES},
        "libraries": {name: _digest(name, "*.so*") for name in LIBRARIES},
        "installed": dict(sorted((each.name, each.version) for each in metadata.distributions())),
        "environment": {
            name: "set, and not told" if any(word in name for word in _SECRET) else value
            for name, value in sorted(os.environ.items())
            if name.startswith(_VARIABLES)
        },
        "preflight": [asdict(finding) for finding in examine(Host())] if arm == "rocm" else [],
    }


@cache
def of_the_tests() -> dict[str, Any]:
    """Of this machine, which runs the tests between the hosts; its hardware does not matter."""
    return facts_of("sim")


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _digest(package: str, beside: str = "") -> str | None:
    """Of all that Python reads, and what else of this pattern is right in the package's folder."""
    if package == SETTINGS:
        return hashlib.sha256(_SETTINGS.read_bytes()).hexdigest() if _SETTINGS.exists() else None
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    digest = hashlib.sha256()
    more = folder.glob(beside) if beside else ()
    for path in sorted((*folder.rglob("*.py"), *more)):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def differences(facts: Mapping[str, Mapping[str, Any]], keys: Sequence[str] = _SAME) -> list[str]:
    """What has to be the same on two machines and is not, or is not known, by their names."""
    (one, ours), (other, theirs) = facts.items()
    mine, yours = _flat(ours, keys), _flat(theirs, keys)
    return [
        f"{key}: {mine.get(key)} on {one}, {yours.get(key)} on {other}"
        for key in dict.fromkeys([*mine, *yours])
        if mine.get(key) != yours.get(key) or (key.startswith("sources") and mine.get(key) is None)
    ]


def other_versions(tests: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """Of the machine of the tests, which need not have what engines need, nor the same."""
    theirs = _flat(host, _VERSIONS)
    return [
        f"{key.removeprefix('packages ')} {value} and not {theirs[key]}"
        for key, value in _flat(tests, _VERSIONS).items()
        if None not in (value, theirs.get(key)) and value != theirs[key]
    ]


def _flat(facts: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in keys:
        value = facts.get(key)  # of other sources, which may tell less
        found |= (
            {f"{key} {name}": each for name, each in value.items()}
            if isinstance(value, Mapping)
            else {key: value}
        )
    return found


def missing(facts: Mapping[str, Any]) -> Sequence[str]:
    """What the preflight of a host has not found, in a line each."""
    return [
        f"{each['name']}: found {each['found']}; needed {each['needed']}; fix: {each['remedy']}"
        for each in facts["preflight"]
        if not each["ok"]
    ]
