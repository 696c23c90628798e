"""The command that runs something on a host: over ssh, inside a Slurm allocation, by hand, or here.

All ways run the same line of shell, and all stand for it by a process of this machine, whose
standard input and output are those of the far side: when the process is gone they are closed there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hw_tests.cluster.suites import NOT_OF_A_RUN

Way = Literal["local", "ssh", "srun", "hand"]

_SSH = ("-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
_SRUN = ("--nodes=1", "--ntasks=1", "--overlap", "--unbuffered", "--quiet")
RUN_VARIABLE = "FAULTLAB_RUN"
"""In the environment of everything that a run starts, so that it can be found."""


@dataclass(frozen=True)
class Settings:
    """What is the same for both hosts.

    Args:
        way: how a host is reached.
        directory: of this source tree on the hosts.
        python: the interpreter there.
        deadline_s: after which everything is ended there, whatever it does.
        silence_s: likewise, if nothing was heard from here.
        inside: a command that enters a container there, such as ``docker exec -i NAME``.
        ssh: the ssh command and its options.
        srun: the srun command and its options.
        answer_at: with way ``hand``: the address of this machine as the hosts see it.
        run: a name of this run, and with way ``hand`` what lets the hosts in.
    """

    way: Way
    directory: str
    python: str = sys.executable
    deadline_s: float = 7200.0
    silence_s: float = 30.0
    inside: Sequence[str] = ()
    ssh: Sequence[str] = ("ssh",)
    srun: Sequence[str] = ("srun",)
    answer_at: str = ""
    run: str = ""


@dataclass(frozen=True)
class Target:
    """One host.

    Args:
        name: by which ssh or Slurm know it.
        address: by which the engines reach each other.
        environment: set there.
        port: with way ``hand``, where it is waited for.
    """

    name: str
    address: str
    environment: Mapping[str, str]
    port: int = 0


def local_command(settings: Settings, target: Target) -> list[str]:
    """What is started on this machine."""
    there = [*settings.inside, "sh", "-c", _line(settings, target)]
    if settings.way == "local":
        return there
    if settings.way == "ssh":
        return [*settings.ssh, *_SSH, target.name, shlex.join(there)]
    if settings.way == "srun":
        return [*settings.srun, *_SRUN, f"--nodelist={target.name}", *there]
    listen = ["listen", str(target.port), settings.run]
    return [sys.executable, "-m", "hw_tests.cluster.by_hand", *listen]


def command_by_hand(settings: Settings, target: Target) -> str:
    """What a person types on a host that neither ssh nor Slurm reaches, or to see what is done."""
    if settings.way != "hand":
        return shlex.join(local_command(settings, target))
    answer = [f"{settings.answer_at}:{target.port}", settings.run]
    call = [settings.python, "-m", "hw_tests.cluster.by_hand", "call", *answer, "--", "sh", "-c"]
    words = shlex.join([*call, _line(settings, target)])
    return _typed(settings, f"{_change(settings)} && {words}")


def typed_there(settings: Settings, target: Target, words: Sequence[str]) -> str:
    """A line of shell that runs a command there, from anywhere, as a run would."""
    words = [*_with_environment(settings, target), *words]
    return _typed(settings, f"{_change(settings)} && {shlex.join(words)}")


def _typed(settings: Settings, line: str) -> str:
    return shlex.join([*settings.inside, "sh", "-c", line]) if settings.inside else line


def _change(settings: Settings) -> str:
    return f"cd {shlex.quote(settings.directory)}"


def _with_environment(settings: Settings, target: Target) -> Sequence[str]:
    environment = {
        "PYTHONPATH": settings.directory,
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        **dict.fromkeys(NOT_OF_A_RUN, ""),
        RUN_VARIABLE: settings.run,
        **target.environment,
    }
    return ["env", *(f"{name}={value}" for name, value in environment.items())]


def _line(settings: Settings, target: Target) -> str:
    """Of shell, in the container if there is one."""
    supervisor = ["-m", "hw_tests.cluster.supervisor"]
    limits = [f"--deadline={settings.deadline_s:g}", f"--silence={settings.silence_s:g}"]
    command = [*supervisor, *limits, "--", settings.python, "-m", "hw_tests.cluster.agent"]
    words = [*_with_environment(settings, target), settings.python, *command]
    return f"{_change(settings)} && exec {shlex.join(words)}"
