"""The command line of the run on two hosts."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, get_args

from connector.core.addresses import is_ipv4
from hw_tests.cluster.reach import Settings, Target, Way
from hw_tests.cluster.remote import BEAT_S
from hw_tests.cluster.suites import SERVED, SUITES, needed_after, option, own_after, untold_after
from hw_tests.load.verified import WANTED, verifies
from hw_tests.option_types import command, is_there, parsed, port, seconds, url
from hw_tests.process.arms import PROCESS_ARMS
from hw_tests.process.launcher import free_port
from hw_tests.process.messages import HOST, Role

ROLES: Mapping[str, Role] = {"producer": "kv_producer", "consumer": "kv_consumer"}
PORTS: Mapping[str, int] = {"prefill": 8000, "decode": 8000, "control": 8001, "router": 8080}
"""Of servers; prefill, control and router are on one host."""
_ROOT = Path(__file__).parents[2]
_LONGEST_NAME = 200


class BadOptions(ValueError):
    """The command line names something that cannot be; the text says what and what is needed."""


class Serve(NamedTuple):
    """Of a suite that serves a model.

    Args:
        commands: that serve, by the name of a server: prefill, decode, and if there is one control.
        ports: by the name of a server; the router has one, too.
        control_url: of a control that somebody else serves; empty if there is none.
        start_within_s: within which each server has to be ready.
        unverified: whether engines may do without ``verify_reads``.
    """

    commands: Mapping[str, str]
    ports: Mapping[str, int]
    control_url: str
    start_within_s: float
    unverified: bool


class Options(NamedTuple):
    """What was asked for.

    Args:
        settings: of both hosts.
        targets: by role.
        arm: of the tests.
        suite: a name of `SUITES`, or one of `SERVED`.
        serve: how the model of a `SERVED` suite is served.
        narrowed: further arguments of pytest, or of the client of a `SERVED` suite.
        out: a new folder for the results.
        only_print: print the commands and run nothing.
    """

    settings: Settings
    targets: Mapping[Role, Target]
    arm: str
    suite: str
    serve: Serve
    narrowed: Sequence[str]
    out: Path
    only_print: bool


def parse(arguments: Sequence[str]) -> Options:
    """Raises BadOptions."""
    parser = _parser()
    given = parsed(parser, arguments)
    if not (_ROOT / "pyproject.toml").exists():
        raise BadOptions(f"{_ROOT} is no source tree; change to one and run this there")
    if given.way == "hand" and not (given.answer_at or given.only_print):
        raise BadOptions("--way hand needs --answer-at ADDRESS: this machine, as both hosts see it")
    if given.silence <= 2 * BEAT_S:
        raise BadOptions(f"--silence {given.silence:g}: this side gives a sign each {BEAT_S:g} s; "
                         f"say more than {2 * BEAT_S:g}")  # fmt: skip
    if not given.run:
        raise BadOptions("--run '' is no name; leave it out for one that nobody can guess")
    settings = Settings(
        given.way,
        given.directory,
        given.python,
        given.deadline,
        given.silence,
        shlex.split(given.inside or ""),
        shlex.split(given.ssh),
        shlex.split(given.srun),
        given.answer_at or "THIS-MACHINE",
        given.run,
    )
    targets = {role: _target(name, given) for name, role in ROLES.items()}
    if given.way == "local" and {t.name for t in targets.values()} != {"localhost"}:
        raise BadOptions("--producer and --consumer name hosts, which --way local does not reach: "
                         "use --way ssh, srun or hand")  # fmt: skip
    out = given.out or Path("hw-results") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    if is_there(out) and not given.only_print:
        raise BadOptions(f"--out {out} exists; name a new folder")
    serve = _serve(given)
    _check_after(given)
    if not given.only_print:
        _check_tools(settings)
    suite, narrowed = given.suite, given.pytest
    return Options(settings, targets, given.arm, suite, serve, narrowed, out, given.only_print)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hw_tests.cluster",
        description="Run the hardware suite with a producer on one host and a consumer on another.",
        epilog="Further arguments, after --, go to pytest, such as: -- -k a_read_fills; with "
        "--suite load or recall to hw_tests.load or recall, such as: -- --trace FILE --first",
    )
    add = parser.add_argument
    add("--producer", default="localhost", metavar="HOST[=ADDRESS]",
        help="as ssh or Slurm know it, and an address at which engines reach it")  # fmt: skip
    add("--consumer", default="localhost", metavar="HOST[=ADDRESS]", help="likewise")
    add(
        "--way",
        choices=get_args(Way),
        default="local",
        help="how hosts are reached (default: %(default)s); hand: you type a command there",
    )
    add("--arm", choices=sorted(PROCESS_ARMS), default="rocm")
    add("--suite", choices=sorted([*SUITES, *SERVED]), default="all")
    _add_serve(parser)
    add("--env", action="append", default=[], metavar="[ROLE:]NAME=VALUE",
        help="set there; for one side only after producer: or consumer:")  # fmt: skip
    add("--directory", default=str(_ROOT), help="of this source tree there (default: as here)")
    add("--python", default=sys.executable, help="there (default: as here)")
    add("--inside", type=command, default=None, metavar="COMMAND",
        help="enters a container there, such as 'docker exec -i NAME'")  # fmt: skip
    add("--ssh", type=command, default="ssh", metavar="COMMAND", help="such as 'ssh -p 2222'")
    add("--srun", type=command, default="srun", metavar="COMMAND",
        help="such as 'srun --gres=gpu:8 --propagate=NONE'")  # fmt: skip
    add("--answer-at", default="", metavar="ADDRESS", help="of this machine, for --way hand")
    add("--deadline", type=seconds, default=7200.0,
        help="seconds, after which all is ended there")  # fmt: skip
    add("--silence", type=seconds, default=30.0,
        help="seconds without a sign of this side after which all is ended there")  # fmt: skip
    add("--out", type=Path, help="a new folder (default: hw-results/TIME)")
    add("--run", default=secrets.token_hex(8),
        help="a name of this run, which all that it starts has in its environment")  # fmt: skip
    add("--print", dest="only_print", action="store_true", help="print the commands, run nothing")
    add("pytest", nargs="*", help=argparse.SUPPRESS)
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("of --suite load and recall").add_argument
    for name, where in (("prefill", "producer's"), ("decode", "consumer's")):
        add(f"--{name}", type=command, metavar="COMMAND",
            help=f"such as 'vllm serve ...', on the {where} host")  # fmt: skip
    add("--control", type=command, metavar="COMMAND",
        help="likewise, on the producer's host; without it recall asks prefill")  # fmt: skip
    add("--control-url", type=url, metavar="URL", help="of one that somebody else serves")
    add("--port", type=_server_port, action="append", default=[], metavar="NAME=PORT",
        help=f"of a server ({', '.join(map('{0[0]}={0[1]}'.format, PORTS.items()))})")  # fmt: skip
    add("--start-within", type=seconds, default=1800.0, metavar="S",
        help="until a server is ready (%(default)s)")  # fmt: skip
    add("--unverified", action="store_true", help=f"do not insist on {WANTED}")


def _serve(given: argparse.Namespace) -> Serve:
    names = ("prefill", "decode", "control")
    commands = {name: getattr(given, name) for name in names if getattr(given, name)}
    ports = {**PORTS, **dict(given.port)}
    needed = {"load": names, "recall": names[:2]}.get(given.suite, ())
    had = {*commands, *(["control"] if given.control_url else [])}
    if missing := [f"--{name}" for name in needed if name not in had]:
        raise BadOptions(f"--suite {given.suite} needs {', '.join(missing)}: a command that serves")
    if needed:
        _each_has_its_port([*commands, "router"], ports, given)
    unverified = [name for name in needed[:2] if not verifies(commands[name])]
    if unverified and not given.unverified:
        raise BadOptions(f"--{unverified[0]} does not set {WANTED}; do, or say --unverified")
    control_url = given.control_url or ""
    return Serve(commands, ports, control_url, given.start_within, given.unverified)


def _each_has_its_port(
    started: Sequence[str], ports: Mapping[str, int], given: argparse.Namespace
) -> None:
    """Raises BadOptions: two servers of one host have the same."""
    is_one = given.producer == given.consumer
    by_port: dict[int, str] = {}
    for name in started:
        if name == "decode" and not is_one:
            continue
        if (other := by_port.setdefault(ports[name], name)) != name:
            raise BadOptions(f"--port {name}={ports[name]}: {other} on the same host has it, too; "
                             f"name another: --port {name}=PORT")  # fmt: skip


def _server_port(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if name not in PORTS or not number:
        raise argparse.ArgumentTypeError(
            f"{text!r}; needed NAME=PORT with a name of {', '.join(PORTS)}"
        )
    return name, port(number)


def _target(name: str, given: argparse.Namespace) -> Target:
    host, _, address = getattr(given, name).partition("=")
    if not _is_name(host):
        raise BadOptions(f"--{name} {getattr(given, name)!r}: needed HOST or HOST=ADDRESS")
    if address and not is_ipv4(address):  # which is all that engines take
        raise BadOptions(f"--{name} {host}={address}: needed an IPv4 address, such as 10.0.0.1")
    port = 0 if given.way != "hand" else free_port("")
    return Target(host, address or _address_of(host, given), _environment(name, given.env), port)


def _is_name(host: str) -> bool:
    """For ssh, which would take ``-x`` for an option, and for a folder of the results."""
    is_word = host.isprintable() and not set(host) & set(" /")
    return 0 < len(host.encode()) <= _LONGEST_NAME and is_word and not host.startswith("-")


def _address_of(host: str, given: argparse.Namespace) -> str:
    if host == "localhost":
        return HOST
    try:
        address = socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:  # the latter of a name with an empty or a long part
        if given.only_print:
            return host
        raise BadOptions(f"{host}: {error}; name its address: {host}=ADDRESS") from None
    if address.startswith("127.") and given.producer != given.consumer:
        raise BadOptions(f"{host} is {address} here, which the other host cannot reach; name "
                         f"an address of its network: {host}=ADDRESS")  # fmt: skip
    return address


def _check_after(given: argparse.Namespace) -> None:
    """Raises BadOptions: what comes after -- is against what comes before it."""
    after = [option(word) for word in given.pytest]
    if own := [word for word in after if word in own_after(given.suite)]:
        raise BadOptions(f"{own[0]} after --: a run sets that itself; leave it out there (what can "
                         "be chosen comes before --, see --help)")  # fmt: skip
    if untold := [word for word in after if word in untold_after(given.suite)]:
        raise BadOptions(f"{untold[0]} after --: the verdict could not tell what it leaves out; "
                         "use -k, -m, --deselect or --ignore, written out there")  # fmt: skip
    if missing := [word for word in needed_after(given.suite) if word not in after]:
        raise BadOptions(f"--suite {given.suite} needs more after --: {' '.join(missing)} FILE, "
                         "on the producer's host")  # fmt: skip
    if "--require-hardware" in after and given.arm != "rocm":
        raise BadOptions(f"--require-hardware after --: --arm {given.arm} is no hardware; leave it "
                         "out, or use --arm rocm")  # fmt: skip


def _check_tools(settings: Settings) -> None:
    """Raises BadOptions: this machine has not the command that reaches hosts."""
    tools = {
        "ssh": (settings.ssh[0], "install it, or name it: --ssh"),
        "srun": (settings.srun[0], "run this where Slurm is, or use another --way"),
        "local": ((*settings.inside, "sh")[0], "install it, or leave --inside out"),
        "hand": ("sh", ""),
    }
    tool, remedy = tools[settings.way]
    if not shutil.which(tool):
        raise BadOptions(f"--way {settings.way}: there is no command {tool} here; {remedy}")
    named = any(word.startswith("--jobid") for word in settings.srun)
    if settings.way == "srun" and not named and not os.environ.get("SLURM_JOB_ID"):
        raise BadOptions(
            "--way srun: no allocation here, so srun would queue a job for each host; run this "
            "inside salloc -N 2, or name one: --srun 'srun --jobid=NUMBER'"
        )


def _environment(role: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        before, _, rest = each.partition(":")
        whose, setting = (before, rest) if before in ROLES else (role, each)
        name, is_set, value = setting.partition("=")
        if not is_set or not name:
            raise BadOptions(f"--env {each}: needed NAME=VALUE or ROLE:NAME=VALUE")
        if whose == role:
            found[name] = value
    return found
