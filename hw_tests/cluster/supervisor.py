"""Runs a command for somebody who may go away, and then ends everything that it has started.

``python -m hw_tests.cluster.supervisor --deadline 3600 --silence 30 -- COMMAND``. Lines of standard
input go to the command, except empty ones, which only tell that the other side lives. The command,
and whatever it has started and in whatever sessions, is killed when it ends itself, when standard
input closes, when nothing was heard for ``--silence`` seconds, when ``--deadline`` has passed, and
on SIGTERM, SIGINT and SIGHUP. Exit code: the command's, or 1 if it was ended.

If this process is killed itself, the kernel kills the command with it. What the command has started
in other sessions is ended by the next supervisor on this machine (`leftovers`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hw_tests.child import die_with_parent
from hw_tests.cluster.leftovers import PREFIX, hold, sweep
from hw_tests.option_types import parsed, seconds

_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_PLACE = 40
_LOOK_S = 0.1
_END_WITHIN_S = 30.0  # a process in the kernel's hands ends when the kernel lets go of it


class Ended(Exception):
    """The command has to end; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hw_tests.cluster.supervisor")
    parser.add_argument("--deadline", type=seconds, required=True, help="seconds")
    parser.add_argument("--silence", type=seconds, default=float("inf"), help="seconds")
    parser.add_argument("command", nargs="+")
    options = parsed(parser, arguments)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    # What loses its parent becomes a child of this process, so that nothing gets out of sight.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    place = _scratch_place()
    sweep(Path(place))
    with tempfile.TemporaryDirectory(
        prefix=PREFIX, dir=place, ignore_cleanup_errors=True
    ) as scratch:
        hold(Path(scratch))
        try:
            return _run(options.command, options.deadline, options.silence, scratch)
        except Ended as reason:
            print(f"supervisor: ended the command: {reason}", file=sys.stderr, flush=True)
            return 1
        finally:
            _ignore_signals()
            _kill_all()


def _scratch_place() -> str:
    """Schedulers make long paths, and a socket's may have 107 characters."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _LONGEST_PLACE else "/tmp"


def _end(number: int, _frame: object) -> None:
    raise Ended(signal.Signals(number).name)


def _ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _run(command: Sequence[str], deadline_s: float, silence_s: float, scratch: str) -> int:
    end = time.monotonic() + deadline_s
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={**os.environ, "TMPDIR": scratch},
            start_new_session=True,
            preexec_fn=functools.partial(die_with_parent, os.getpid()),
        )
    except OSError as error:
        raise Ended(f"{command[0]}: {error.strerror}; needed a command of this host") from None
    assert child.stdin is not None
    heard, pending = time.monotonic(), b""
    while child.poll() is None:
        now = time.monotonic()
        if now > end:
            raise Ended(f"its deadline of {deadline_s:g} s has passed")
        if now > heard + silence_s:
            raise Ended(f"nothing was heard from the other side for {silence_s:g} s")
        if not select.select([0], [], [], _LOOK_S)[0]:
            continue
        if not (data := os.read(0, 65536)):
            raise Ended("the other side has closed the connection")
        heard = now
        *lines, pending = (pending + data).split(b"\n")
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the loop will see
            child.stdin.write(b"".join(line + b"\n" for line in lines if line))
            child.stdin.flush()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _kill_all() -> None:
    """Returns when no process below this one is left, or says which ones do not end."""
    deadline = time.monotonic() + _END_WITHIN_S
    while time.monotonic() < deadline:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # nobody is left, and whom they leave would come here
            return
        time.sleep(0.02)
    left = sorted(_descendants(os.getpid()))
    print(f"supervisor: processes that do not end: {left}", file=sys.stderr, flush=True)


def _descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: set[int] = set()
    ahead = [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found.update(below)
        ahead += below
    return found


if __name__ == "__main__":
    sys.exit(main())
