"""A node with eight MI300X and eight 400G NICs, as its sysfs, proc and dev show it.

The paths and forms are the kernel's; the values are those of such a node. GPU and NIC n share a PCI
switch; 0 to 3 are on NUMA node 0, 4 to 7 on node 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hw_tests.preflight.host import Host, ProbeFailed

TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
KERNEL = "5.15.0-119-generic"
LISTENING = "   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0"


class _Guarded(Host):
    """Of a container or a job that was not given everything."""

    forbidden: frozenset[str] = frozenset()

    def read(self, name: str) -> str:
        if name in self.forbidden:
            raise PermissionError(1, "Operation not permitted", name)
        return super().read(name)


class Node:
    """Files below ``root``, and what Python answers; tests break single things of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.closed: set[str] = set()
        self.forbidden: set[str] = set()
        self.environ: dict[str, str] = {}
        gpus = ["gfx942:sramecc+:xnack-"] * 8
        self.answers: dict[str, dict[str, Any] | str] = {
            "torch": {"version": "2.13.0+rocm7.2", "hip": "7.2.53211", "gpus": gpus},
            "mori": {"version": "1.2.4", "file": "site-packages/mori/io/__init__.py"},
            "vllm": {"version": "0.33.0+rocm724", "rocm": True},
            "verbs": {"devices": [f"rdma{number}" for number in range(8)]},
            "connector": {"class": "HybridReadConnector", "sources": "0123456789ab"},
        }
        self.write("opt/rocm/.info/version", "7.2.4-98")
        self.write(f"{TOPOLOGY}/0/properties", "cpu_cores_count 96\n")
        for number in range(8):
            self._gpu(number)
            self._nic(number)
        self.write("dev/kfd", "")
        self.write("proc/sys/kernel/osrelease", KERNEL)
        self.write(f"boot/config-{KERNEL}", "CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n")
        self.write("sys/kernel/mm/memory_peers/amdkfd/version", "1.0")
        self.memlock("unlimited")
        self.listen(22)

    def _gpu(self, number: int) -> None:
        bus = 0x05 + 0x10 * number
        self.write(
            f"{TOPOLOGY}/{number + 1}/properties",
            f"simd_count 1216\ngfx_target_version 90402\nlocation_id {bus << 8}\ndomain 0\n"
            f"drm_render_minor {128 + 8 * number}\n",
        )
        device = self._pci(f"0000:{bus:02x}:00.0", number)
        (device / "current_compute_partition").write_text("SPX\n")
        (device / "current_memory_partition").write_text("NPS1\n")
        self.write(f"dev/dri/renderD{128 + 8 * number}", "")

    def _nic(self, number: int) -> None:
        address = f"0000:{0x06 + 0x10 * number:02x}:00.0"
        device = self._pci(address, number)
        port = f"sys/class/infiniband/rdma{number}/ports/1"
        for name, text in (
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "400 Gb/sec (4X NDR)"),
        ):
            self.write(f"{port}/{name}", text)
        (self.root / f"sys/class/infiniband/rdma{number}/device").symlink_to(device)
        self.write(f"dev/infiniband/uverbs{number}", "")

    def split(self, location: Callable[[int], int]) -> None:
        """Show the first GPU as eight, each where it is and ``location`` of its number."""
        device = "sys/bus/pci/devices/0000:05:00.0"
        self.write(f"{device}/current_compute_partition", "CPX\n")
        self.write(f"{device}/current_memory_partition", "NPS4\n")
        for part in range(1, 8):
            self.write(
                f"{TOPOLOGY}/{8 + part}/properties",
                f"simd_count 152\ngfx_target_version 90402\nlocation_id {0x500 + location(part)}\n"
                f"domain 0\ndrm_render_minor {128 + part}\n",
            )
            self.write(f"dev/dri/renderD{128 + part}", "")
        self.answers["torch"] = {**self.answers["torch"], "gpus": ["gfx942"] * 15}  # type: ignore[dict-item]

    def _pci(self, address: str, number: int) -> Path:
        folder = f"sys/devices/pci0000:{number:02x}/0000:{number:02x}:01.0/{address}"
        self.write(f"{folder}/numa_node", str(number // 4))
        link = self.root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / folder)
        return self.root / folder

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def memlock(self, limit: str) -> None:
        heading = "Limit                     Soft Limit           Hard Limit           Units"
        self.write("proc/self/limits", f"{heading}\nMax locked memory  {limit} {limit} bytes\n")

    def listen(self, port: int, table: str = "tcp") -> None:
        self.write(f"proc/net/{table}", f"  sl  local_address\n{LISTENING.format(port=port)}\n")
        if table != "tcp":
            self.write("proc/net/tcp", "  sl  local_address\n")

    def host(self) -> Host:
        """The node as the checks see it; an answer that is a text is a failed import."""

        def ask(name: str) -> dict[str, Any]:
            answer = self.answers[name]
            if isinstance(answer, str):
                raise ProbeFailed(answer)
            return answer

        def access(path: Path) -> bool:
            return path.relative_to(self.root).as_posix() not in self.closed

        host = _Guarded(self.root, ask, access, self.environ)
        host.forbidden = frozenset(self.forbidden)
        return host
