"""Judges a machine: what will run on it, what will not, and what to do about it.

Pure functions of the facts in ``faults.machine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from faults.machine import Machine

TORCH = "2.13.0"
VLLM = "0.33.0"
INSTALL_LINES = (
    f"pip install torch=={TORCH}",
    f"pip install --no-deps vllm=={VLLM}",
    "pip install --no-deps -r requirements/cpu.txt",
    "pip install -e .",
)

CONNECTOR_NOTE = (
    f"on AMD, vLLM {VLLM} uses Kimi-K3's specialised decode runtime beside KV transfer only on a "
    "consumer with MoRIIOConnector, by that name and without kv_connector_module_path: with "
    "HybridReadConnector, or any other connector, that model decodes without it"
)
"""What any connector but MoRIIO's costs on machines that this command cannot see."""

# Importing vLLM's scheduler alone takes 0.5 GB; the rest is room for KV caches.
_COMFORTABLE_MEMORY = 2 << 30


class Status(StrEnum):
    """How a check ended. Only what is missing keeps something from running."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Needs(StrEnum):
    """What does not run without the thing that was checked."""

    SIMULATOR = "simulator"
    HARDWARE = "hardware tests"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; ``remedy`` is a command or an instruction."""

    name: str
    status: Status
    found: str
    expected: str
    needed_by: Needs = Needs.NOTHING
    remedy: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """All checks, and for each use what stands in its way (nothing: it will run)."""

    checks: Sequence[Check]
    simulator_obstacles: Sequence[str]
    hardware_obstacles: Sequence[str]


def examine(machine: Machine) -> Diagnosis:
    """Judge ``machine``."""
    checks = [
        _python(machine),
        _package(machine, "torch", TORCH, INSTALL_LINES[0]),
        _package(machine, "vllm", VLLM, INSTALL_LINES[1]),
        _vllm_imports(machine),
        *(_package(machine, name, None, INSTALL_LINES[3]) for name in ("simpy", "greenlet")),
        _entry_points(machine),
        _hash_seed(machine),
        _memory(machine),
        Check("cores", Status.OK, str(machine.cores), "1 or more"),
        _mori(machine),
        _gpu(machine),
        _hardware_tests(machine),
    ]
    return Diagnosis(
        checks, _obstacles(checks, Needs.SIMULATOR), _obstacles(checks, Needs.HARDWARE)
    )


def _obstacles(checks: Sequence[Check], use: Needs) -> list[str]:
    return [
        f"{check.name}: {check.found}"
        for check in checks
        if check.status is Status.MISSING and check.needed_by is use
    ]


def _python(machine: Machine) -> Check:
    found = ".".join(map(str, machine.python))
    if (3, 11) <= machine.python < (3, 13):
        return Check("python", Status.OK, found, "3.11 or 3.12", Needs.SIMULATOR)
    remedy = "python3.11 -m venv .venv && . .venv/bin/activate"
    return Check("python", Status.MISSING, found, "3.11 or 3.12", Needs.SIMULATOR, remedy)


def _package(machine: Machine, name: str, version: str | None, remedy: str) -> Check:
    expected = version or "any"
    found = machine.installed.get(name)
    if found is None:
        return Check(name, Status.MISSING, "not installed", expected, Needs.SIMULATOR, remedy)
    # A local label such as +cpu names a build of the same release.
    if version is not None and found.split("+")[0] != version:
        # Not in place: in a ROCm container that would replace the build for its GPUs.
        elsewhere = f"in a virtual environment of its own: {remedy}"
        return Check(name, Status.WARNING, found, expected, Needs.SIMULATOR, elsewhere)
    return Check(name, Status.OK, found, expected, Needs.SIMULATOR)


def _vllm_imports(machine: Machine) -> Check:
    name, expected = "vllm imports", f"{len(machine.pins)} packages at their pins"
    if not machine.pins:
        found = "not checked: the list is only in the source tree"
        return Check(name, Status.WARNING, found, "requirements/cpu.txt", Needs.SIMULATOR)
    absent = [pin for pin in machine.pins if pin not in machine.installed]
    if absent:
        found = f"not installed: {', '.join(absent)}"
        return Check(name, Status.MISSING, found, expected, Needs.SIMULATOR, INSTALL_LINES[2])
    moved = [pin for pin, version in machine.pins.items() if machine.installed[pin] != version]
    if moved:
        found = f"other versions: {', '.join(moved)}"
        return Check(name, Status.WARNING, found, expected, Needs.SIMULATOR, INSTALL_LINES[2])
    return Check(name, Status.OK, f"{len(machine.pins)} packages", expected, Needs.SIMULATOR)


def _entry_points(machine: Machine) -> Check:
    """An environment that was installed into before a part existed lacks that part."""
    name, expected = "entry points", ", ".join(machine.entry_points)
    missing = [what for what, found in machine.entry_points.items() if not found]
    if missing:
        found, remedy = f"not registered: {', '.join(missing)}", INSTALL_LINES[3]
        return Check(name, Status.WARNING, found, expected, Needs.NOTHING, remedy)
    return Check(name, Status.OK, "registered", expected)


def _hash_seed(machine: Machine) -> Check:
    name, expected = "hash seed", "0, whatever the caller has"
    if machine.hash_seed_fixed:
        found = f"fixed (the caller's: {machine.caller_hash_seed})"
        return Check(name, Status.OK, found, expected, Needs.SIMULATOR)
    remedy = "start it as faultlab or python -m faults.cli, without -E, -I or -R"
    return Check(name, Status.MISSING, "random", expected, Needs.SIMULATOR, remedy)


def _memory(machine: Machine) -> Check:
    enough = machine.memory_bytes >= _COMFORTABLE_MEMORY
    found = f"{machine.memory_bytes / (1 << 30):.1f} GiB"
    return Check("memory", Status.OK if enough else Status.WARNING, found, "2 GiB or more")


def _mori(machine: Machine) -> Check:
    expected = "on ROCm machines only"
    if machine.mori_importable:
        version = machine.installed.get("amd-mori") or machine.installed.get("mori")
        found = version or "importable, version unknown"
        return Check("mori", Status.OK, found, expected, Needs.HARDWARE)
    remedy = (
        "use a vLLM ROCm container, which brings mori, "
        "or on Python 3.12 with ROCm 7: pip install amd-mori"
    )
    return Check("mori", Status.MISSING, "not installed", expected, Needs.HARDWARE, remedy)


def _gpu(machine: Machine) -> Check:
    name, expected = "AMD GPU", "/dev/kfd, readable and writable"
    if machine.kfd == "usable":
        return Check(name, Status.OK, f"{machine.gpus} render nodes", expected, Needs.HARDWARE)
    remedy = (
        "start the container with: --device=/dev/kfd --device=/dev/dri "
        "--group-add=$(getent group render | cut -d: -f3)"
    )
    if machine.kfd == "absent":
        remedy = f"use a machine with an AMD GPU; there, {remedy}"
    return Check(name, Status.MISSING, f"/dev/kfd: {machine.kfd}", expected, Needs.HARDWARE, remedy)


def _hardware_tests(machine: Machine) -> Check:
    name, found = "hw_tests", f"{machine.hardware_test_files} test files"
    status = Status.OK if machine.hardware_test_files else Status.MISSING
    return Check(name, status, found, "1 or more", Needs.HARDWARE)
