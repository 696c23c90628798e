"""ROCm, mori, vLLM and the connector: are they there, and are they the right ones."""

from __future__ import annotations

import re

from hw_tests.preflight.check import Check, NotMet
from hw_tests.preflight.host import Host, ProbeFailed

VLLM = "0.33.0"
_ROCM_MAJOR = 7
_MORI = ((1, 2, 4), (2,))
"""The first version that is known to work, and the first that is not."""


def rocm_version(host: Host) -> str:
    """Raises OSError."""
    return host.read("opt/rocm/.info/version")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(\.\d+)*", version)
    if numbers is None:
        raise NotMet(f"a version that cannot be read: {version!r}")
    return tuple(map(int, numbers[0].split(".")))


def _rocm(host: Host) -> str:
    try:
        version = rocm_version(host)
    except FileNotFoundError:
        raise NotMet("no ROCm in its usual place") from None
    if _numbers(version)[0] != _ROCM_MAJOR:
        raise NotMet(f"ROCm {version}")
    return f"ROCm {version}"


def _mori(host: Host) -> str:
    try:
        answer = host.probe("mori")
    except ProbeFailed as error:
        raise NotMet(f"mori.io cannot be imported: {error}") from None
    version = answer["version"]
    if version is None:
        raise NotMet(f"mori.io of {answer['file']}, installed without a version")
    first, beyond = _MORI
    if not first <= _numbers(version) < beyond:
        raise NotMet(f"mori {version}")
    return f"mori {version}, {answer['file']}"


def _vllm(host: Host) -> str:
    try:
        answer = host.probe("vllm")
    except ProbeFailed as error:
        raise NotMet(f"vLLM cannot be imported: {error}") from None
    found = f"vLLM {answer['version']}, {'for ROCm' if answer['rocm'] else 'not for ROCm'}"
    if not answer["rocm"] or answer["version"].split("+")[0] != VLLM:
        raise NotMet(found)
    return found


def _connector(host: Host) -> str:
    try:
        answer = host.probe("connector")
    except ProbeFailed as error:
        raise NotMet(f"vLLM's factory cannot load it: {error}") from None
    return f"{answer['class']} loaded by vLLM's factory, sources {answer['sources']}"


CHECKS = (
    Check(
        "ROCm",
        f"ROCm {_ROCM_MAJOR}, for which mori's wheels are built",
        "use a vLLM container with ROCm 7, or install ROCm 7 from AMD's packages",
        _rocm,
    ),
    Check(
        "mori",
        "mori 1.2.4 or later, below 2, that can be imported",
        "pip install 'amd-mori>=1.2.4,<2' under Python 3.12, or a container that brings it",
        _mori,
    ),
    Check(
        "vLLM",
        f"vLLM {VLLM}, built for ROCm",
        f"use the ROCm container of vLLM {VLLM}; an installed CUDA or CPU build does not see "
        "the GPUs",
        _vllm,
    ),
    Check(
        "connector",
        "the connector, importable inside that vLLM with mori.io",
        "pip install --no-deps . in this source tree, in the environment of vLLM; what else is "
        "missing is named by the error",
        _connector,
    ),
)
