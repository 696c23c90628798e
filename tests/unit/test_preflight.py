"""The preflight of hardware tests, on a recorded node and on the same with one thing broken."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mi300x_node import KERNEL, TOPOLOGY, Node

from faults.cli import preflight
from faults.cli.dispatch import run
from hw_tests.preflight import CHECKS, Finding, Host, examine
from hw_tests.preflight.host import ProbeFailed, ask_python
from hw_tests.preflight.peers import serve, versions
from hw_tests.preflight.probes import PROBES

GPU = "sys/bus/pci/devices/0000:25:00.0"
PORT = "sys/class/infiniband/rdma5/ports/1"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "root")


def failed(node: Node) -> list[Finding]:
    return [finding for finding in examine(node.host()) if not finding.ok]


def remove(node: Node, name: str) -> None:
    path = node.root / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def answering(node: Node, times: int) -> Iterator[str]:
    """The address at which ``node`` tells its versions so often."""
    left = iter([True] * times + [False])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = (node.host(), listener, lambda: next(left))
        thread = threading.Thread(target=serve, args=arguments)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def rocm_6(node: Node) -> None:
    node.write("opt/rocm/.info/version", "6.4.1-83")


def older_gpu(node: Node) -> None:
    path = f"{TOPOLOGY}/3/properties"
    text = (node.root / path).read_text()
    node.write(path, text.replace("90402", "90010"))


def mode(node: Node, kind: str, name: str) -> None:
    node.write(f"{GPU}/current_{kind}_partition", f"{name}\n")


def forget(node: Node, kind: str) -> None:
    remove(node, f"{GPU}/current_{kind}_partition")


def alone(node: Node, address: str) -> None:
    (found,) = (node.root / "sys/devices").rglob(f"{address}/numa_node")
    found.write_text("-1")


def link(node: Node, name: str, text: str) -> None:
    node.write(f"{PORT}/{name}", text)


def no_gpu_direct(node: Node, config: str) -> None:
    remove(node, "sys/kernel/mm/memory_peers/amdkfd")
    node.write(f"boot/config-{KERNEL}", config)


def answer(node: Node, name: str, **values: object) -> None:
    node.answers[name] = {**node.answers[name], **values}  # type: ignore[dict-item]


def no_verbs(node: Node) -> None:
    node.answers["verbs"] = "OSError: libibverbs.so.1: cannot open shared object file"


Break = Callable[[Node], object]
BROKEN: list[tuple[str, str, Break]] = [
    ("ROCm", "no ROCm", lambda n: remove(n, "opt/rocm/.info/version")),
    ("ROCm", "ROCm 6.4.1-83", rocm_6),
    ("ROCm", "cannot be read: 'unknown'", lambda n: n.write("opt/rocm/.info/version", "unknown")),
    ("mori", "No module named", lambda n: n.answers.update(mori="No module named 'mori'")),
    ("mori", "mori 1.2.3", lambda n: answer(n, "mori", version="1.2.3")),
    ("mori", "mori 2.0", lambda n: answer(n, "mori", version="2.0")),
    ("mori", "without a version", lambda n: answer(n, "mori", version=None)),
    ("vLLM", "0.32.1", lambda n: answer(n, "vllm", version="0.32.1+rocm")),
    ("vLLM", "not for ROCm", lambda n: answer(n, "vllm", rocm=False)),
    ("vLLM", "cannot be imported: x", lambda n: n.answers.update(vllm="x")),
    ("connector", "no attribute", lambda n: n.answers.update(connector="no attribute 'wait_all'")),
    ("GPU architecture", "1 × gfx90a, 7 × gfx942", older_gpu),
    ("GPU partitions", "0000:25:00.0 CPX NPS1", lambda n: mode(n, "compute", "CPX")),
    ("GPU partitions", "0000:25:00.0 SPX NPS4", lambda n: mode(n, "memory", "NPS4")),
    ("GPU partitions", "no current_memory_partition", lambda n: forget(n, "memory")),
    ("GPU devices", "dev/kfd", lambda n: n.closed.add("dev/kfd")),
    ("GPU devices", "dev/dri/renderD144", lambda n: remove(n, "dev/dri/renderD144")),
    ("GPU visibility", "not built for ROCm", lambda n: answer(n, "torch", hip=None)),
    ("GPU visibility", "7 of 8", lambda n: answer(n, "torch", gpus=["gfx942"] * 7)),
    ("GPU visibility", "gfx1100", lambda n: answer(n, "torch", gpus=["gfx942"] * 7 + ["gfx1100"])),
    ("RDMA links", "rdma5/1: 1: DOWN", lambda n: link(n, "state", "1: DOWN")),
    ("RDMA links", "3: Disabled", lambda n: link(n, "phys_state", "3: Disabled")),
    ("RDMA links", "FileNotFoundError", lambda n: remove(n, f"{PORT}/rate")),
    ("verbs devices", "no dev/infiniband", lambda n: remove(n, "dev/infiniband")),
    ("verbs devices", "uverbs2", lambda n: n.closed.add("dev/infiniband/uverbs2")),
    ("verbs devices", "not rdma1, ", lambda n: answer(n, "verbs", devices=["rdma0"])),
    ("verbs devices", "libibverbs.so.1: cannot", no_verbs),
    ("GPU-direct RDMA", "P2PDMA", lambda n: no_gpu_direct(n, "CONFIG_DMABUF_MOVE_NOTIFY=y")),
    ("GPU-direct RDMA", "MOVE_NOTIFY", lambda n: no_gpu_direct(n, "CONFIG_PCI_P2PDMA=y\n")),
    ("NIC affinity", "0000:25:00.0 on NUMA node -1", lambda n: alone(n, "0000:25:00.0")),
    ("locked memory", "65536 bytes", lambda n: n.memlock("65536")),
    ("locked memory", "FileNotFoundError", lambda n: remove(n, "proc/self/limits")),
    ("ports", "listens on 6303", lambda n: n.listen(6303)),
    ("ports", "listens on 61005", lambda n: n.listen(61005, "tcp6")),
]  # fmt: skip


def test_nothing_is_missing_on_a_good_node(node: Node) -> None:
    """And every check says what it saw."""
    findings = examine(node.host())
    assert [finding.name for finding in findings] == [check.name for check in CHECKS]
    assert [str(finding) for finding in findings if not finding.ok] == []
    assert all(finding.found and finding.remedy is None for finding in findings)
    (affinity,) = [f for f in findings if f.name == "NIC affinity"]
    assert affinity.found.startswith("0000:05:00.0–rdma0 2 PCI hops, NUMA 0")


@pytest.mark.parametrize(
    ("name", "words", "damage"), BROKEN, ids=[f"{n}-{w}".replace(" ", "_") for n, w, _ in BROKEN]
)
def test_one_broken_thing_fails_one_check_that_says_what_it_saw(
    node: Node, name: str, words: str, damage: Break
) -> None:
    """With the thing that is needed and a remedy; the other checks still pass."""
    damage(node)
    (finding,) = failed(node)
    assert finding.name == name
    assert words in finding.found
    assert finding.needed
    assert finding.remedy


def test_every_check_is_seen_to_fail() -> None:
    """A check that no broken node fails is not known to look at anything."""
    assert {name for name, _, _ in BROKEN} == {check.name for check in CHECKS}


def test_a_machine_without_anything_lacks_everything(tmp_path: Path) -> None:
    """No check passes for want of something to look at."""
    empty = Node(tmp_path / "recorded")
    empty.root = tmp_path / "empty"
    empty.answers = dict.fromkeys(empty.answers, "No module")
    assert [finding.name for finding in failed(empty)] == [check.name for check in CHECKS]


def test_no_rdma_device_is_missed_by_all_that_need_one(node: Node) -> None:
    """The links, the verbs devices and the affinity, each in its own words."""
    remove(node, "sys/class/infiniband")
    assert {f.name for f in failed(node)} == {"RDMA links", "verbs devices", "NIC affinity"}


def test_a_device_that_mori_is_told_to_leave_out_is_not_looked_at(node: Node) -> None:
    """By exclusion or by a list; a GPU on whose NUMA node all are left out then has none."""
    link(node, "state", "1: DOWN")
    node.environ["MORI_RDMA_DEVICES"] = "^rdma5"
    assert failed(node) == []
    node.environ["MORI_RDMA_DEVICES"] = "rdma0:1,rdma1:1"
    assert [finding.name for finding in failed(node)] == ["NIC affinity"]


def test_fewer_gpus_are_enough_where_a_variable_asks_for_fewer(node: Node) -> None:
    """Two are needed, because transfers between two are tested."""
    node.environ["HIP_VISIBLE_DEVICES"] = "0,1"
    answer(node, "torch", gpus=["gfx942"] * 2)
    assert failed(node) == []
    answer(node, "torch", gpus=["gfx942"])
    assert [finding.name for finding in failed(node)] == ["GPU visibility"]


@pytest.mark.parametrize("location", [lambda part: part << 28, lambda part: part])
def test_parts_of_a_chip_are_no_gpus(node: Node, location: Callable[[int], int]) -> None:
    """Wherever the kernel writes which part one is; a test of two GPUs would have half of one."""
    node.split(location)
    (finding,) = failed(node)
    assert finding.name == "GPU partitions"
    assert finding.found == "0000:05:00.0 CPX NPS4, 8 devices"
    assert "--compute-partition SPX" in (finding.remedy or "")


def test_gpus_that_a_job_was_not_given_are_no_part_of_it(node: Node) -> None:
    """The kernel lists them and lets nobody else read what they are; none at all is none."""
    node.forbidden = {f"{TOPOLOGY}/{number}/properties" for number in range(3, 9)}
    answer(node, "torch", gpus=["gfx942"] * 2)
    assert failed(node) == []
    (found,) = [each.found for each in examine(node.host()) if each.name == "GPU architecture"]
    assert found == "2 × gfx942 (6 more not permitted)"
    node.forbidden = {f"{TOPOLOGY}/{number}/properties" for number in range(1, 9)}
    by_name = {finding.name: finding for finding in failed(node)}
    assert "8 not permitted" in by_name["GPU architecture"].found
    assert "--device=/dev/dri" in (by_name["GPU architecture"].remedy or "")


def test_dmabuf_is_enough_without_peer_memory(node: Node) -> None:
    """And the kernel's configuration may be in proc only, compressed; elsewhere it is not told."""
    remove(node, "sys/kernel/mm/memory_peers/amdkfd")
    assert failed(node) == []
    remove(node, f"boot/config-{KERNEL}")
    assert "no configuration of kernel" in failed(node)[0].found


def test_a_peer_of_the_same_versions_is_found_and_another_is_refused(node: Node) -> None:
    """Over a socket, as two machines do."""
    turns = iter((True, True, False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(
            target=serve, args=(node.host(), listener, lambda: next(turns))
        )
        answering.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        good = examine(node.host(), [address])[-1]
        answer(node, "mori", version="1.2.5")
        bad = examine(node.host(), [address])[-1]
        answering.join()
    silent = examine(node.host(), [address])[-1]
    assert (good.ok, good.name) == (True, f"peer {address}")
    assert (bad.ok, bad.found) == (False, "mori 1.2.4 there and 1.2.5 here")
    assert (silent.ok, silent.found[:9]) == (False, "no answer")
    assert silent.remedy is not None
    assert "--serve" in silent.remedy


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("rocm", lambda node: node.write("opt/rocm/.info/version", "7.1.0")),
        ("mori", lambda node: answer(node, "mori", version="1.2.5")),
        ("vllm", lambda node: answer(node, "vllm", version="0.33.0+rocm71")),
        ("torch", lambda node: answer(node, "torch", version="2.12.0")),
        ("connector", lambda node: answer(node, "connector", sources="ba9876543210")),
    ],
)
def test_a_peer_has_to_be_the_same_in_each_of_these(
    node: Node, tmp_path: Path, key: str, change: Break
) -> None:
    """What differs is named, and nothing else."""
    peer = Node(tmp_path / "peer")
    change(node)
    with answering(peer, 1) as address:
        finding = examine(node.host(), [address])[-1]
    assert not finding.ok
    theirs, ours = (versions(each.host()).get(key) for each in (peer, node))
    assert finding.found == f"{key} {theirs} there and {ours} here"


def test_a_machine_is_no_peer_of_itself(node: Node, tmp_path: Path) -> None:
    """By whatever address it is asked, and in whatever container."""
    peer = Node(tmp_path / "peer")
    node.write("proc/sys/kernel/random/boot_id", "a\n")
    for boot, is_other in (("a\n", False), ("b\n", True)):
        peer.write("proc/sys/kernel/random/boot_id", boot)
        with answering(peer, 1) as address:
            finding = examine(node.host(), [address])[-1]
        assert (finding.ok, "this machine itself" in finding.found) == (is_other, not is_other)


@pytest.mark.parametrize("address", ["node2", "node2:http", ":6300"])
def test_an_address_without_host_or_port_is_named(node: Node, address: str) -> None:
    assert "is not HOST:PORT" in examine(node.host(), [address])[-1].found


def test_a_machine_that_lacks_something_cannot_agree_with_a_peer(node: Node) -> None:
    """Two machines without mori are not of the same version."""
    node.answers["mori"] = "No module named 'mori'"
    assert versions(node.host())["mori"] is None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        turns = iter((True, False))
        answering = threading.Thread(
            target=serve, args=(node.host(), listener, lambda: next(turns))
        )
        answering.start()
        finding = examine(node.host(), [f"127.0.0.1:{listener.getsockname()[1]}"])[-1]
        answering.join()
    assert (finding.ok, "no mori" in finding.found) == (False, True)


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 2)])
def test_json_lists_every_check_and_the_exit_code_says_whether_all_is_there(
    node: Node,
    broken: bool,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if broken:
        node.memlock("65536")
    monkeypatch.setattr(preflight, "Host", node.host)
    assert run(["doctor", "--hardware", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["hardware"] == {
        "ready": not broken,
        "missing": ["locked memory"] if broken else [],
    }
    assert {*document["checks"][0]} == {"name", "ok", "found", "needed", "remedy"}
    assert len(document["checks"]) == len(CHECKS)
    assert document["notes"] == [
        "unverified on hardware: these checks have not seen a node with GPUs yet",
        "no --peer was given: other machines were not looked at",
    ]
    assert run(["doctor", "--hardware"]) == code
    assert ("ulimit -l unlimited" in capsys.readouterr().out) is broken


def test_every_check_prints_what_it_saw_and_what_is_needed(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that pass, too; and each that does not, how to get there."""
    empty = Node(node.root.parent / "recorded")
    empty.root = node.root.parent / "empty"
    empty.answers = dict.fromkeys(empty.answers, "No module")
    monkeypatch.setenv("COLUMNS", "1000")  # so that no cell is wrapped
    for machine in (node, empty):
        monkeypatch.setattr(preflight, "Host", machine.host)
        run(["doctor", "--hardware"])
        told = " ".join(capsys.readouterr().out.split())
        for finding in examine(machine.host()):
            for what in (finding.name, finding.found, finding.needed, finding.remedy or ""):
                assert what in told, finding


def test_peers_without_hardware_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--peer", "node2:6300"]) == 2
    assert "add it" in capsys.readouterr().err


def test_python_is_asked_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What that process says last is the answer, or the reason why there is none."""
    for name, program in (
        ("good", "print('noise'); print('{\"version\": 1}')"),
        ("bad", "import no_such_module"),
        ("abort", "import os; os._exit(7)"),
    ):
        monkeypatch.setitem(PROBES, name, program)
    assert ask_python("good") == {"version": 1}
    with pytest.raises(ProbeFailed, match="No module named 'no_such_module'"):
        ask_python("bad")
    with pytest.raises(ProbeFailed, match="exit code 7"):
        ask_python("abort")


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc, which makes the library; apt install")
def test_the_library_of_verbs_says_which_devices_it_has_a_provider_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that mori would load."""
    source = tmp_path / "verbs.c"
    source.write_text(
        'static char *devices[] = {"rdma0", "rdma1", 0};\n'
        "char **ibv_get_device_list(int *count) { *count = 2; return devices; }\n"
        "const char *ibv_get_device_name(char *device) { return device; }\n"
    )
    library = tmp_path / "libibverbs.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert ask_python("verbs") == {"devices": ["rdma0", "rdma1"]}


@pytest.mark.skipif(sys.platform != "linux", reason="sysfs and proc are Linux's")
def test_the_files_of_this_machine_can_be_read() -> None:
    """Real proc has the form that the checks expect, whatever it says."""
    findings = examine(
        Host(
            ask=lambda name: {
                "version": "1",
                "rocm": False,
                "hip": None,
                "gpus": [],
                "file": "",
                "class": "",
                "sources": "",
            }
        )
    )
    for name in ("locked memory", "ports"):
        (finding,) = [finding for finding in findings if finding.name == name]
        assert "cannot be told" not in finding.found
