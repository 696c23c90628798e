"""The RDMA devices, how they reach the GPUs, and what the operating system allows."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import NamedTuple

from hw_tests.preflight.check import Check, NotMet
from hw_tests.preflight.gpus import gpus_of
from hw_tests.preflight.host import Host, ProbeFailed

PORTS = (6301, 61005)
"""Handshake and notification, as docs/connector.md has them; one more for each further rank."""
_RANKS = 8
_EXCLUDE = "MORI_RDMA_DEVICES"
_PEER_MEMORY = ("sys/kernel/mm/memory_peers/amdkfd", "sys/memory_peers/amdkfd")
_DMABUF = ("CONFIG_PCI_P2PDMA=y", "CONFIG_DMABUF_MOVE_NOTIFY=y")
_LISTENS = "0A"  # TCP_LISTEN in proc/net/tcp


class Nic(NamedTuple):
    """One RDMA device: its name and its directory in sysfs."""

    name: str
    path: Path


def _nics(host: Host) -> list[Nic]:
    """The devices that mori may use. Raises NotMet if there is none."""
    nics = [Nic(path.name, path) for path in host.entries("sys/class/infiniband")]
    names = host.environ.get(_EXCLUDE, "")
    listed = {name.split(":")[0] for name in names.lstrip("^").split(",") if name}
    if listed:
        nics = [nic for nic in nics if (nic.name in listed) != names.startswith("^")]
    if not nics:
        raise NotMet(f"no RDMA device{f' with {_EXCLUDE}={names}' if names else ''}")
    return nics


def _link(host: Host) -> str:
    described, down = [], []
    for nic in _nics(host):
        ports = sorted((nic.path / "ports").iterdir())
        for port in ports:
            state, physical, rate = (
                (port / name).read_text().strip() for name in ("state", "phys_state", "rate")
            )
            described.append(f"{nic.name}/{port.name} {rate.split(' (')[0]}")
            if "ACTIVE" not in state or "LinkUp" not in physical:
                down.append(f"{nic.name}/{port.name}: {state}, {physical}")
        if not ports:
            down.append(f"{nic.name}: no port")
    if down:
        raise NotMet("; ".join(down))
    return ", ".join(described)


def _verbs(host: Host) -> str:
    nics = _nics(host)
    devices = [path for path in host.entries("dev/infiniband") if path.name.startswith("uverbs")]
    closed = [path.name for path in devices if not host.usable(path)]
    if closed or not devices:
        raise NotMet(
            f"not permitted: {', '.join(closed)}" if closed else "no dev/infiniband/uverbs*"
        )
    try:
        listed = host.probe("verbs")["devices"]
    except ProbeFailed as error:
        raise NotMet(f"libibverbs cannot be asked: {error}") from None
    if unknown := [nic.name for nic in nics if nic.name not in listed]:
        told = f"libibverbs lists {', '.join(listed) or 'none'} and not {', '.join(unknown)}"
        raise NotMet(f"{told}, as it has no provider for what the kernel shows")
    return f"{len(devices)} verbs devices, readable and writable; libibverbs has their providers"


def _gpu_direct(host: Host) -> str:
    if any(host.path(name).exists() for name in _PEER_MEMORY):
        return "peer memory, registered by the amdgpu driver"
    lines = _kernel_config(host).splitlines()
    missing = [line for line in _DMABUF if line not in lines]
    if missing:
        raise NotMet(f"no peer memory, and a kernel without {' and '.join(missing)}")
    return "dmabuf, which the kernel supports"


def _kernel_config(host: Host) -> str:
    release = host.read("proc/sys/kernel/osrelease")
    plain, packed = host.path(f"boot/config-{release}"), host.path("proc/config.gz")
    if plain.exists():
        return plain.read_text()
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode()
    raise NotMet(f"no peer memory, and no configuration of kernel {release} to look for dmabuf in")


def _affinity(host: Host) -> str:
    nics = {nic.name: (nic.path / "device").resolve() for nic in _nics(host)}
    described, far = [], []
    for address in dict.fromkeys(gpu.address for gpu in gpus_of(host)):
        path = host.path(f"sys/bus/pci/devices/{address}").resolve()
        node = _numa(path)
        near = [name for name, device in nics.items() if node >= 0 and _numa(device) == node]
        if not near:
            far.append(f"{address} on NUMA node {node} has no RDMA device beside it")
            continue
        name = min(near, key=lambda name: (_distance(path, nics[name]), name))
        hops = _distance(path, nics[name])
        described.append(f"{address}–{name} {hops} PCI hops, NUMA {node}")
    if far:
        raise NotMet("; ".join(far))
    return ", ".join(described)


def _numa(device: Path) -> int:
    return int((device / "numa_node").read_text())


def _distance(one: Path, other: Path) -> int:
    """Bridges between two devices, from the tree that sysfs paths are."""
    common = len(Path(os.path.commonpath([one, other])).parts)
    return len(one.parts) + len(other.parts) - 2 * common


def _memlock(host: Host) -> str:
    limit = re.search(r"^Max locked memory\s+(\S+)", host.read("proc/self/limits"), re.MULTILINE)
    if limit is None or limit[1] != "unlimited":
        raise NotMet("no such limit" if limit is None else f"{limit[1]} bytes")
    return "unlimited"


def _ports(host: Host) -> str:
    lines = [line.split() for line in host.read("proc/net/tcp").splitlines()[1:]]
    if host.path("proc/net/tcp6").exists():
        lines += [line.split() for line in host.read("proc/net/tcp6").splitlines()[1:]]
    taken = {int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == _LISTENS}
    wanted = [port + rank for port in PORTS for rank in range(_RANKS)]
    if busy := sorted(taken.intersection(wanted)):
        raise NotMet(f"somebody listens on {', '.join(map(str, busy))}")
    return f"nobody listens on {', '.join(f'{port}–{port + _RANKS - 1}' for port in PORTS)}"


CHECKS = (
    Check(
        "RDMA links",
        "one RDMA device or more, every port ACTIVE and LinkUp",
        f"bring the link up (ip link, rdma link), or leave the device out: {_EXCLUDE}=^NAME; in a "
        "container: --network=host",
        _link,
    ),
    Check(
        "verbs devices",
        "dev/infiniband/uverbs*, usable, and a libibverbs that lists each RDMA device",
        "modprobe ib_uverbs; start the container with: --device=/dev/infiniband; install there "
        "libibverbs1 and the provider of the NIC's vendor in the version of the host's driver "
        "(ibverbs-providers, or for Broadcom and AMD Pensando the vendor's own); ibv_devices lists "
        "what is known",
        _verbs,
    ),
    Check(
        "GPU-direct RDMA",
        "peer memory of amdgpu, or a kernel with PCI_P2PDMA and DMABUF_MOVE_NOTIFY",
        "load the RDMA driver before amdgpu-dkms so that it registers peer memory, or boot a "
        "kernel with dmabuf; in a container mount the host's boot directory to show it",
        _gpu_direct,
    ),
    Check(
        "NIC affinity",
        "for every GPU an RDMA device on its NUMA node",
        "check the slots, the BIOS (NUMA nodes for each socket) and that no RDMA device beside a "
        "GPU was left out, or use a machine that has them",
        _affinity,
    ),
    Check(
        "locked memory",
        "unlimited",
        "ulimit -l unlimited; in a container: --ulimit memlock=-1",
        _memlock,
    ),
    Check(
        "ports",
        "handshake and notification ports of eight ranks, free",
        "stop what listens there, such as an earlier run, with: ss -ltnp",
        _ports,
    ),
)
