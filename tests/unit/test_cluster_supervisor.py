"""The process on a host that ends everything there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from far_hosts import ROOT, marked, until, until_none

from hw_tests.cluster.reach import RUN_VARIABLE

# One child in a session of its own whose parent goes on, and one whose parent is gone.
_FAMILY = "setsid sleep 600 & (setsid sleep 600 &); echo up; "


def start(mark: str, script: str, *limits: str) -> subprocess.Popen[bytes]:
    """Under a supervisor, when its children are there."""
    command = [sys.executable, "-m", "hw_tests.cluster.supervisor"]
    command += [*(limits or ["--deadline=60"]), "--", "sh", "-c", _FAMILY + script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), RUN_VARIABLE: mark}
    pipe = subprocess.PIPE
    supervisor = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"up\n"
    return supervisor


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"test-{os.getpid()}-{tmp_path.name}"


def ended(supervisor: subprocess.Popen[bytes], mark: str) -> tuple[int, str]:
    """Its exit code and last words; nothing of what it has started may be left."""
    code = supervisor.wait(60)
    assert marked(mark) == {}
    assert supervisor.stderr is not None
    said = supervisor.stderr.read().decode()
    for stream in (supervisor.stdin, supervisor.stdout, supervisor.stderr):
        assert stream is not None
        stream.close()
    return code, said


def test_what_a_command_leaves_ends_with_it(mark: str) -> None:
    """And the command's exit code is told."""
    supervisor = start(mark, "read line; exit $line")
    assert marked(mark)
    assert supervisor.stdin is not None
    supervisor.stdin.write(b"7\n")
    supervisor.stdin.flush()
    assert ended(supervisor, mark) == (7, "")


def test_the_end_of_input_ends_everything(mark: str) -> None:
    """Which is how a lost connection looks."""
    supervisor = start(mark, "exec sleep 600")
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    code, said = ended(supervisor, mark)
    assert code == 1
    assert "the other side has closed the connection" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything(mark: str, number: signal.Signals) -> None:
    """A stopped command, too."""
    supervisor = start(mark, "kill -STOP $$")
    supervisor.send_signal(number)
    code, said = ended(supervisor, mark)
    assert (code, number.name in said) == (1, True)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (["--deadline=0.6"], "its deadline of 0.6 s has passed"),
        (["--deadline=60", "--silence=0.6"], "nothing was heard from the other side for 0.6 s"),
    ],
)
def test_time_ends_everything(mark: str, limits: list[str], why: str) -> None:
    """Without anybody's doing."""
    code, said = ended(start(mark, "exec sleep 600", *limits), mark)
    assert (code, why in said) == (1, True)


def test_only_lines_that_say_something_get_to_the_command(mark: str) -> None:
    """An empty one is a sign of life, whatever pieces it comes in."""
    supervisor = start(mark, "head -n 2")
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    supervisor.stdin.write(b"\n\none\n\ntw")
    supervisor.stdin.flush()
    supervisor.stdin.write(b"o\n\n")
    supervisor.stdin.flush()
    assert supervisor.stdout.read() == b"one\ntwo\n"
    assert ended(supervisor, mark) == (0, "")


def test_the_next_supervisor_ends_what_a_killed_one_has_left(mark: str) -> None:
    """The kernel has ended the command, but not the two that sleep in sessions of their own."""
    supervisor = start(mark, "echo $TMPDIR; exec tail -f /dev/null")
    assert supervisor.stdout is not None
    scratch = Path(supervisor.stdout.readline().decode().strip())
    supervisor.kill()
    supervisor.wait()
    until(lambda: not any("tail" in line for line in marked(mark).values()), lambda: marked(mark))
    later = f"{mark}-later"
    assert ended(start(later, "exit 0"), later)[0] == 0
    until_none(mark)
    assert not scratch.exists()


def test_a_supervisor_leaves_others_alone(mark: str) -> None:
    """Those that live: their processes and their folders."""
    living = start(mark, "echo $TMPDIR; read line; exit 3")
    assert living.stdin is not None
    assert living.stdout is not None
    scratch = Path(living.stdout.readline().decode().strip())
    before = set(marked(mark))
    later = f"{mark}-later"
    assert ended(start(later, "exit 0"), later)[0] == 0
    assert set(marked(mark)) == before
    assert scratch.is_dir()
    living.stdin.write(b"go\n")
    living.stdin.flush()
    assert ended(living, mark)[0] == 3
