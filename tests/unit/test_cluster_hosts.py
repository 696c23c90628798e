"""Engines on other hosts: they do what engines here do, and nothing is ever left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from far_hosts import PROGRAM, ROOT, far_host, make_clients, marked, until, until_none

from hw_tests.cluster import by_hand
from hw_tests.cluster.agent import OUT
from hw_tests.cluster.reach import Settings, Target, Way, command_by_hand, local_command
from hw_tests.cluster.remote import HostLost, RemoteHost
from hw_tests.cluster.run import unreached
from hw_tests.process.launcher import ProcessEnded, free_port


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of this test's processes; ssh and srun are those of `far_hosts`."""
    clients = make_clients(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{clients}{os.pathsep}{os.environ['PATH']}")
    name = f"test-{os.getpid()}-{tmp_path.name}"
    yield name
    until_none(name)


def check_works(host: RemoteHost, mark: str) -> Path:
    """Start, call, log, stop, go on, fail; returns the scratch folder there."""
    process = host.start("engine", PROGRAM, "an argument")
    assert process.is_alive
    pid = process.pid
    assert pid in marked(mark)
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    (scratch,) = [each[7:] for each in environment if each.startswith("TMPDIR=")]
    assert process.call("echo", tokens=[1, 2]) == "echo"
    assert "echo with {'tokens': [1, 2]}" in process.log.read_text()
    process.suspend()
    with pytest.raises(HostLost, match=r"does not answer within 0.1 s"):
        host.ask("call", 0.1, number=process.number, command="late", arguments={})
    assert "late with" not in process.log.read_text()
    os.kill(pid, signal.SIGCONT)
    assert host.free_port() > 0, "the late answer was taken for this one"
    with pytest.raises(ProcessEnded, match="RuntimeError: told to fail with an argument"):
        process.call("fail")
    assert process.exit_code() == 1
    assert host.free_port() > 0
    with pytest.raises(AssertionError, match="no_such_request"):
        host.ask("no_such_request")
    return Path(scratch)


@pytest.mark.parametrize("way", ["ssh", "srun", pytest.param("local", marks=pytest.mark.soak)])
def test_a_process_elsewhere_does_what_one_here_does(way: Way, mark: str, tmp_path: Path) -> None:
    """However the host is reached; when it is closed, nothing is left and no scratch folder."""
    longer = tmp_path / ("x" * 80)  # as of schedulers, too long for the names of sockets
    longer.mkdir()
    host = far_host(way, tmp_path / "logs", mark, {"TMPDIR": str(longer)})
    scratch = check_works(host, mark)
    assert scratch.is_dir()
    host.close()
    assert marked(mark) == {}
    assert not scratch.exists()
    if way == "ssh":
        assert "Welcome" in (tmp_path / "logs/host.log").read_text()


def kill(word: str) -> Callable[[str], None]:
    """Kill the processes that have ``word`` in their command line."""

    def strike(mark: str) -> None:
        for pid, line in marked(mark).items():
            if word in line:
                os.kill(pid, signal.SIGKILL)

    return strike


@pytest.mark.soak
@pytest.mark.parametrize(
    "word",
    ["-m hw_tests.cluster.supervisor", "forkserver"],
)
def test_the_far_side_ends_whole_if_a_part_of_it_is_killed(
    word: str, mark: str, tmp_path: Path
) -> None:
    """The one that watches over the others, and the one that has started the engines."""
    host = far_host("ssh", tmp_path / "logs", mark)
    process = host.start("engine", PROGRAM, None)
    children = [pid for pid, line in marked(mark).items() if "sleep" in line]
    kill(word)(mark)
    with pytest.raises((HostLost, ProcessEnded)):
        process.call("echo")
    host.close()
    for pid in children if "supervisor" in word else []:
        os.kill(pid, signal.SIGKILL)  # or the next supervisor there does


def test_a_lost_connection_ends_the_far_side(mark: str, tmp_path: Path) -> None:
    """The ssh command is killed in the middle; whoever asks is told, and what was logged stays."""
    host = far_host("ssh", tmp_path / "logs", mark)
    process = host.start("engine", PROGRAM, None)
    process.call("echo")
    os.killpg(host.pid, signal.SIGKILL)
    until_none(mark)
    for _ in range(2):
        with pytest.raises(HostLost, match=r"connection to node-ssh is gone"):
            process.call("echo")
    assert "echo with {}" in process.log.read_text()
    host.close()


@pytest.mark.soak
def test_a_silent_connection_ends_the_far_side(mark: str, tmp_path: Path) -> None:
    """As when a network is cut: nothing is closed, and nothing comes any more."""
    host = far_host("ssh", tmp_path / "logs", mark, silence_s=4.0)
    host.start("engine", PROGRAM, None)
    os.killpg(host.pid, signal.SIGSTOP)
    until_none(mark)
    os.killpg(host.pid, signal.SIGCONT)
    with pytest.raises(HostLost, match="nothing was heard from the other side for 4 s"):
        host.ask("free_port")
    host.close()


@pytest.mark.soak
def test_signs_of_life_are_enough(mark: str, tmp_path: Path) -> None:
    """A connection over which nothing is asked for longer than the silence that ends it."""
    host = far_host("ssh", tmp_path / "logs", mark, silence_s=5.0)
    process = host.start("engine", PROGRAM, None)
    threading.Event().wait(12)
    assert process.call("echo") == "echo"
    host.close()


@pytest.mark.soak
def test_the_deadline_ends_the_far_side(mark: str, tmp_path: Path) -> None:
    """Though this side lives and tells so."""
    host = far_host("srun", tmp_path / "logs", mark, deadline_s=20.0)
    host.start("engine", PROGRAM, None)
    until_none(mark)
    with pytest.raises(HostLost, match="its deadline of 20 s has passed"):
        host.ask("free_port")
    host.close()


def hold(folder: str, mark: str) -> None:
    """Starts an engine on each of two hosts, one stopped, and waits to be killed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hosts = [far_host("ssh", Path(folder) / name, mark) for name in ("one", "other")]
    engines = [host.start("engine", PROGRAM, None) for host in hosts]
    engines[1].suspend()
    print("ready", flush=True)
    signal.pause()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(s, marks=pytest.mark.soak) for s in (2, 15))]
)
def test_the_end_of_the_tests_is_the_end_of_both_hosts(
    number: int, mark: str, tmp_path: Path
) -> None:
    """By any signal, without a chance to clean up."""
    code = f"from test_cluster_hosts import hold; hold({str(tmp_path)!r}, {mark!r})"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests/unit")])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert len([line for line in marked(mark).values() if "supervisor" in line]) >= 2
        holder.send_signal(number)
    until_none(mark)


def test_a_host_that_cannot_be_reached_is_told_with_what_was_said(tmp_path: Path) -> None:
    """By ssh, for one."""
    command = ["sh", "-c", "echo 'ssh: no route to node1' >&2; exit 255"]
    host = RemoteHost("node1", "10.0.0.1", command, tmp_path / "logs")
    with pytest.raises(HostLost, match=r"node1 is gone\n.*no route to node1"):
        host.ask("free_port")
    host.close()


def a_container(folder: Path) -> list[str]:
    """A command that enters what stands for one; the interpreter ``inside`` is only there."""
    enter, inside = folder / "enter", folder / "container/inside"
    inside.parent.mkdir()
    enter.write_text(f'#!/bin/sh\nPATH={inside.parent}:$PATH exec "$@"\n')
    inside.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for script in (enter, inside):
        script.chmod(0o755)
    return [str(enter)]


@pytest.mark.parametrize("in_container", [False, True])
def test_a_host_can_be_joined_by_a_typed_command(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_container: bool
) -> None:
    """Who comes without the token is sent away; when the tests are gone, so is the far side.

    Where the source tree and the interpreter are in a container, nothing of them is needed outside.
    """
    monkeypatch.chdir(ROOT)
    settings = Settings("hand", str(ROOT), answer_at="127.0.0.1", run=mark)
    if in_container:
        settings = replace(settings, inside=a_container(tmp_path), python="inside")
    target = Target("node1", "127.0.0.1", {}, free_port())
    host = RemoteHost("node1", "", local_command(settings, target), tmp_path / "logs")
    listening = ["listen", str(target.port)]
    until(lambda: _listens(target.port), lambda: listening)
    stranger = [sys.executable, "-m", by_hand.__name__, "call", f"127.0.0.1:{target.port}"]
    sent_away = subprocess.run([*stranger, "x" * len(mark), "--", "cat"], capture_output=True)
    assert (sent_away.returncode, sent_away.stdout) == (0, b"")
    with subprocess.Popen(["sh", "-c", command_by_hand(settings, target)]) as typed:
        assert host.free_port() > 0
        host.close()
        assert typed.wait(60) == 1


def test_what_a_command_leaves_is_here_where_its_output_says(mark: str, tmp_path: Path) -> None:
    """Its folder there is gone with the host; no path of it is told.

    And options of pytest in the environment there have not reached it.
    """
    host = far_host("local", tmp_path / "logs", mark, {"PYTEST_ADDOPTS": "--setup-plan"})
    write = (
        "import os, pathlib, sys; text = os.environ.get('PYTEST_ADDOPTS', 'all');"
        "pathlib.Path(sys.argv[1]).write_text(text); print(sys.argv[1])"
    )
    ended = host.run("recall", ["-c", write, f"{OUT}/recall.json"], 60)
    host.close()
    assert ended.exit_code == 0
    assert Path(ended.output.strip()).read_text() == "all"
    assert (tmp_path / "logs/recall.log").read_text() == ended.output


def _listens(port: int) -> bool:
    lines = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return f":{port:04X} 00000000" in lines


def test_hosts_that_do_not_reach_each_other_are_noticed(mark: str, tmp_path: Path) -> None:
    """Before any engine is started, in either direction."""
    hosts = [far_host("local", tmp_path / name, mark) for name in ("one", "other")]
    assert unreached(hosts) == []
    hosts[1].address = "no-such-host.invalid"
    (problem,) = unreached(hosts)
    assert problem.startswith(f"{hosts[0].name} does not reach {hosts[1].name} at no-such-host")
    for host in hosts:
        host.close()
