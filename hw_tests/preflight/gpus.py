"""The GPUs: what they are, whether this process may use them, and what it is shown of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hw_tests.preflight.check import Check, NotMet
from hw_tests.preflight.host import Host, ProbeFailed

ARCHITECTURES = ("gfx942", "gfx950")
_TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
_MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_DEVICES = (
    "start the container with: --device=/dev/kfd --device=/dev/dri "
    "--group-add=$(getent group render | cut -d: -f3)"  # by its number: the image may lack the name
)


class Gpu(NamedTuple):
    """One GPU as the kernel driver lists it.

    Args:
        architecture: such as gfx942.
        address: on the PCI bus, such as 0000:05:00.0.
        render: its device below dev/dri.
    """

    architecture: str
    address: str
    render: str


def gpus_of(host: Host) -> list[Gpu]:
    """All GPUs of the machine, whatever this process is shown of them.

    Raises:
        NotMet: there is none.
    """
    nodes = [_properties(node / "properties") for node in host.entries(_TOPOLOGY)]
    gpus = [_gpu(node) for node in nodes if node.get("gfx_target_version", 0)]
    if not gpus:
        raise NotMet("no AMD GPU: the kernel driver amdgpu lists none")
    return sorted(gpus, key=lambda gpu: gpu.address)


def _properties(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def _gpu(node: dict[str, int]) -> Gpu:
    version, location = node["gfx_target_version"], node["location_id"]
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    bus, device, function = location >> 8, location >> 3 & 0x1F, location & 7
    return Gpu(
        f"gfx{major}{minor}{stepping:x}",
        f"{node.get('domain', 0):04x}:{bus:02x}:{device:02x}.{function}",
        f"renderD{node['drm_render_minor']}",
    )


def _architecture(host: Host) -> str:
    counts = Counter(gpu.architecture for gpu in gpus_of(host))
    found = ", ".join(f"{number} × {name}" for name, number in sorted(counts.items()))
    if any(name not in ARCHITECTURES for name in counts):
        raise NotMet(found)
    return found


def _devices(host: Host) -> str:
    wanted = ["dev/kfd"]
    try:
        wanted += [f"dev/dri/{gpu.render}" for gpu in gpus_of(host)]
    except NotMet:
        wanted.append("dev/dri/renderD128")
    closed = [name for name in wanted if not host.usable(host.path(name))]
    if closed:
        raise NotMet(f"not there or not permitted: {', '.join(closed)}")
    return f"dev/kfd and {len(wanted) - 1} render devices, readable and writable"


def _visible(host: Host) -> str:
    try:
        answer = host.probe("torch")
    except ProbeFailed as error:
        raise NotMet(f"torch cannot be asked: {error}") from None
    seen = answer["gpus"]
    build = f"torch {answer['version']}"
    if answer["hip"] is None:
        raise NotMet(f"{build}, which is not built for ROCm")
    total = len(gpus_of(host))
    masks = [f"{name}={host.environ[name]}" for name in _MASKS if name in host.environ]
    found = f"{len(seen)} of {total} visible to {build}{''.join(f' ({mask})' for mask in masks)}"
    wrong = [name for name in seen if name.split(":")[0] not in ARCHITECTURES]
    if wrong:
        raise NotMet(f"{found}, of them {', '.join(wrong)}")
    if len(seen) < 2 or (len(seen) < total and not masks):
        raise NotMet(found)
    return found


CHECKS = (
    Check(
        "GPU architecture",
        f"GPUs of {' or '.join(ARCHITECTURES)} only (MI300X, MI325X; MI350X, MI355X)",
        "run on a node with these GPUs, with the amdgpu driver loaded (modprobe amdgpu)",
        _architecture,
    ),
    Check("GPU devices", "dev/kfd and a render device for each GPU, usable", _DEVICES, _devices),
    Check(
        "GPU visibility",
        "two GPUs or more, and all of them unless a variable such as HIP_VISIBLE_DEVICES says less",
        f"install torch for ROCm; unset {', '.join(_MASKS)} or name two GPUs; where GPU devices "
        "are missing, repair those first",
        _visible,
    ),
)
