"""The GPUs: what they are, whether this process may use them, and what it is shown of them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hw_tests.preflight.check import Check, NotMet
from hw_tests.preflight.host import Host, ProbeFailed

ARCHITECTURES = ("gfx942", "gfx950")
_TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
_PCI = "sys/bus/pci/devices"
_WHOLE = "SPX NPS1"
"""The modes of computing and of memory in which a chip is one GPU."""
_MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_DEVICES = (
    "start the container with: --device=/dev/kfd --device=/dev/dri "
    "--group-add=$(getent group render | cut -d: -f3)"  # by its number: the image may lack the name
)


class Gpu(NamedTuple):
    """One GPU as the kernel driver lists it, which may be a part of a chip.

    Args:
        architecture: such as gfx942.
        address: of the chip on the PCI bus, such as 0000:05:00.0.
        render: its device below dev/dri.
    """

    architecture: str
    address: str
    render: str


def gpus_of(host: Host) -> list[Gpu]:
    """All GPUs that this container or job was given, whatever this process is shown of them.

    Raises:
        NotMet: there is none.
    """
    return _listed(host)[0]


def _listed(host: Host) -> tuple[list[Gpu], int]:
    """And how many more there are, of which the kernel tells nothing here. Raises NotMet."""
    gpus, closed = [], 0
    for node in host.entries(_TOPOLOGY):
        try:
            properties = _properties(host.read(f"{_TOPOLOGY}/{node.name}/properties"))
        except PermissionError:
            closed += 1
            continue
        if properties.get("gfx_target_version", 0):
            gpus.append(_gpu(host, properties))
    if not gpus:
        told = f"{closed} not permitted here and no other" if closed else "none"
        raise NotMet(f"no AMD GPU: the kernel driver amdgpu lists {told}")
    return sorted(gpus, key=lambda gpu: gpu.address), closed


def _properties(text: str) -> dict[str, int]:
    lines = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def _gpu(host: Host, node: dict[str, int]) -> Gpu:
    version, location = node["gfx_target_version"], node["location_id"]
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    # Which part of a chip it is stands above the address, or, of other kernels, in its function.
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    slot = f"{node.get('domain', 0):04x}:{bus:02x}:{device:02x}"
    is_there = host.path(f"{_PCI}/{slot}.{function}").exists()
    return Gpu(
        f"gfx{major}{minor}{stepping:x}",
        f"{slot}.{function if is_there else 0}",
        f"renderD{node['drm_render_minor']}",
    )


def _architecture(host: Host) -> str:
    gpus, closed = _listed(host)
    counts = Counter(gpu.architecture for gpu in gpus)
    found = ", ".join(f"{number} × {name}" for name, number in sorted(counts.items()))
    if any(name not in ARCHITECTURES for name in counts):
        raise NotMet(found)
    return f"{found} ({closed} more not permitted)" if closed else found


def _whole(host: Host) -> str:
    devices = Counter(gpu.address for gpu in gpus_of(host))
    modes = {
        each: f"{_mode(host, each, 'compute')} {_mode(host, each, 'memory')}" for each in devices
    }
    parts = [
        f"{address} {modes[address]}, {number} device{'s' * (number > 1)}"
        for address, number in devices.items()
        if number > 1 or modes[address] != _WHOLE
    ]
    if parts:
        raise NotMet("; ".join(parts))
    return f"{len(devices)} × {_WHOLE}"


def _mode(host: Host, address: str, kind: str) -> str:
    name = f"current_{kind}_partition"
    try:
        return host.read(f"{_PCI}/{address}/{name}")
    except OSError:
        return f"(no {name})"


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
        "run on a node with these GPUs, with the amdgpu driver loaded (modprobe amdgpu); where "
        f"they are not permitted, {_DEVICES}",
        _architecture,
    ),
    Check(
        "GPU partitions",
        f"each chip one GPU with one memory: {_WHOLE}",
        "as root, with nothing on the GPUs: amd-smi set --gpu all --compute-partition SPX, then "
        "--memory-partition NPS1 (or rocm-smi --setcomputepartition, --setmemorypartition); an "
        "amdgpu of ROCm 7 shows both modes in sysfs",
        _whole,
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
