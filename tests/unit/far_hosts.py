"""Hosts that are processes of this machine: an ssh and an srun that run their command here.

Like the real ones they carry the far side's input and output, and the far side has a session of its
own; when they are killed, its input is closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hw_tests.cluster.reach import RUN_VARIABLE, Settings, Target, Way, local_command
from hw_tests.cluster.remote import RemoteHost

ROOT = Path(__file__).parents[2]
PROGRAM = "far_hosts:serve"
_CLIENT = """#!{python}
import os, subprocess, sys, threading
arguments = sys.argv[1:]
if {is_ssh}:
    while arguments[0].startswith("-"):
        arguments = arguments[2 if arguments[0] == "-o" else 1:]
    command = ["sh", "-c", " ".join(arguments[1:])]
    print("Welcome to this host")  # as login shells do
    sys.stdout.flush()
else:
    command = arguments
    while command[0].startswith("--"):
        command = command[1:]
far = subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
)
def send():
    while data := os.read(0, 65536):
        os.write(far.stdin.fileno(), data)
    far.stdin.close()
threading.Thread(target=send, daemon=True).start()
while data := os.read(far.stdout.fileno(), 65536):
    os.write(1, data)
os._exit(far.wait())
"""


def serve(commands: Connection, argument: object) -> None:
    """Echoes commands; has a child in a session of its own, which does not end by itself."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    commands.send("ready")
    while True:
        command, arguments = commands.recv()
        print(f"{command} with {arguments}", flush=True)
        if command == "fail":
            raise RuntimeError(f"told to fail with {argument}")
        commands.send(command)


def make_clients(folder: Path) -> Path:
    """A folder for PATH with ``ssh`` and ``srun``."""
    folder.mkdir()
    for name in ("ssh", "srun"):
        client = folder / name
        client.write_text(_CLIENT.format(python=sys.executable, is_ssh=name == "ssh"))
        client.chmod(0o755)
    return folder


def far_host(
    way: Way, logs: Path, mark: str, environment: Mapping[str, str] | None = None, **changes: Any
) -> RemoteHost:
    """A host whose processes have ``mark`` in their environment."""
    given: dict[str, Any] = {"silence_s": 60.0, "deadline_s": 300.0, **changes}
    settings = Settings(way, str(ROOT), run=mark, **given)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests/unit")])
    name = "127.0.0.1" if "ssh" in given else f"node-{way}"  # a real one looks for it
    target = Target(name, "127.0.0.1", {"PYTHONPATH": path, **(environment or {})})
    return RemoteHost(target.name, target.address, local_command(settings, target), logs)


def marked(mark: str) -> dict[int, str]:
    """The command lines of all processes of this machine that were started with ``mark``."""
    found = {}
    wanted = f"{RUN_VARIABLE}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if line:  # one that has ended and is not waited for has none
                    found[int(folder.name)] = line
        except OSError:
            continue
    return found


def until(condition: Callable[[], Any], what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def until_none(mark: str) -> None:
    """Until nothing that was started with ``mark`` is left."""
    until(lambda: not marked(mark), lambda: f"left behind: {marked(mark)}")
