"""Suites for a model that is served on two hosts: prefill on the first, decode on the second.

The router and the client run on the first host. A server that ends before it is ready ends the run;
whatever happens, the hosts' supervisors leave nothing of it.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hw_tests.cluster.agent import OUT, Ended
from hw_tests.cluster.options import Options
from hw_tests.cluster.reach import typed_there
from hw_tests.cluster.remote import HostLost, RemoteHost
from hw_tests.cluster.report import BOTH, How, Report, Test
from hw_tests.cluster.run import Hosts, NotReady
from hw_tests.outcome import EXIT_CODES, NOT_COMPARED, Outcome
from hw_tests.process.launcher import ProcessEnded
from hw_tests.process.messages import Role

_LOOK_S = 0.5
_LAST_LINES = 40
_WORDS = "2000,8000,32000,96000,300000"
_ENDED: Mapping[bool | None, How] = {True: "passed", False: "failed", None: "not run"}
_HOW: Mapping[Outcome, How] = {"pass": "passed", "FAIL": "failed", "INCOMPLETE": "not run"}


class Started(NamedTuple):
    """A server that is started for the client.

    Args:
        role: of its host.
        name: of the server and its log.
        command: as in a shell, without its syntax.
        url: where it serves.
    """

    role: Role
    name: str
    command: str
    url: str


class Plan(NamedTuple):
    """Which servers are started, in this order, and what then runs on the first host.

    Args:
        servers: all but those that the client starts itself.
        client: words after the interpreter.
        prefill_log: in the folder of the first host, when the client has ended.
    """

    servers: Sequence[Started]
    client: Sequence[str]
    prefill_log: Path


def plan(options: Options) -> Plan:
    """Of the suite that was asked for."""
    return _load(options) if options.suite == "load" else _recall(options)


def _load(options: Options) -> Plan:
    """The client starts, kills and stops what is on its own host."""
    urls, serve = _urls(options), options.serve
    words = ["-m", "hw_tests.load", "--prefill", serve.commands["prefill"]]
    words += ["--control", serve.commands["control"]] if "control" in serve.commands else []
    for name in ("prefill", "decode", "control"):
        words += [f"--{name}-url", urls[name]]
    words += ["--router-port", str(serve.ports["router"])]
    words += ["--start-within", f"{serve.start_within_s:g}", "--out", f"{OUT}/load.json"]
    words += ["--unverified"] if serve.unverified else []
    decode = Started("kv_consumer", "decode", serve.commands["decode"], urls["decode"])
    return Plan([decode], [*words, *options.narrowed], Path("load", "prefill.log"))


def _recall(options: Options) -> Plan:
    """The control is the prefill engine, asked without the router, if there is no other."""
    urls, serve = _urls(options), options.serve
    router = [options.settings.python, "-m", "hw_tests.router", "--port"]
    router += [str(serve.ports["router"]), "--prefill", urls["prefill"], "--decode", urls["decode"]]
    servers = [
        Started("kv_producer", "prefill", serve.commands["prefill"], urls["prefill"]),
        Started("kv_consumer", "decode", serve.commands["decode"], urls["decode"]),
        Started("kv_producer", "router", shlex.join(router), urls["router"]),
    ]
    if "control" in serve.commands:
        control = serve.commands["control"]
        servers.append(Started("kv_producer", "control", control, urls["control"]))
    has_control = serve.control_url or "control" in serve.commands
    words = ["-m", "hw_tests.recall", "--url", urls["router"]]
    words += ["--control-url", urls["control" if has_control else "prefill"]]
    words += ["--words", _WORDS, "--out", f"{OUT}/recall.json"]
    words += ["--unverified"] if serve.unverified else []
    return Plan(servers, [*words, *options.narrowed], Path("prefill.log"))


def _urls(options: Options) -> Mapping[str, str]:
    """Where each server is, as the first host and the other see it."""
    producer, consumer = (target.address for target in options.targets.values())
    hosts = {"prefill": producer, "decode": consumer, "control": producer, "router": producer}
    urls = {name: f"http://{host}:{options.serve.ports[name]}" for name, host in hosts.items()}
    return urls | ({"control": options.serve.control_url} if options.serve.control_url else {})


def served_commands(options: Options) -> list[str]:
    """What a person types on the hosts, in this order."""
    planned = plan(options)
    lines = []
    for server in planned.servers:
        host = options.targets[server.role]
        lines.append(f"# {server.name} on {host.name}, at {server.url}")
        lines.append(typed_there(options.settings, host, shlex.split(server.command)))
    first = next(iter(options.targets.values()))
    words = [word.replace(OUT, "results") for word in planned.client]
    client = typed_there(options.settings, first, [options.settings.python, *words])
    return [*lines, f"# then on {first.name}", client]


def run_served(options: Options, hosts: Hosts, report: Report) -> None:
    """Start the servers, run the client, and read what it found.

    Raises:
        NotReady: a server does not come up or ends, or a host is lost.
    """
    planned = plan(options)
    first, consumer = hosts["kv_producer"], hosts["kv_consumer"]
    try:
        for server in planned.servers:
            host = hosts[server.role]
            print(f"{server.name} on {host.name}: {server.command}", flush=True)
            host.serve(server.name, server.command, server.url)
        _wait(planned.servers, hosts, options.serve.start_within_s)
        print(f"on {first.name}: {options.suite}", flush=True)
        ended = first.run(options.suite, planned.client, options.settings.deadline_s)
        print("\n".join(ended.output.strip().splitlines()[-_LAST_LINES:]), flush=True)
        left = first.logs / options.suite
        take(report, options.suite, left / f"{options.suite}.json", ended)
        report.tests += [_still_there(server, hosts[server.role]) for server in planned.servers]
    except (ProcessEnded, HostLost) as error:
        raise NotReady(str(error)) from None
    logs = {"prefill": first.logs / planned.prefill_log, "decode": consumer.logs / "decode.log"}
    report.take_registered(logs)


def _wait(servers: Sequence[Started], hosts: Hosts, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    ahead = list(servers)
    while ahead := [one for one in ahead if not hosts[one.role].serves(one.name, one.url)]:
        if time.monotonic() > deadline:
            one = ahead[0]
            raise NotReady(
                f"{one.name} on {hosts[one.role].name} does not answer {one.url}/health within "
                f"{patience_s:g} s; its log is {hosts[one.role].logs / one.name}.log: if it "
                "serves elsewhere, say --port NAME=PORT or HOST=ADDRESS; if it needs longer, "
                "--start-within"
            )
        time.sleep(_LOOK_S)


def _still_there(server: Started, host: RemoteHost) -> Test:
    """Also brings what it has written since."""
    try:
        serves, why = host.serves(server.name, server.url), "does not answer any more"
    except ProcessEnded as error:
        serves, why = False, str(error)
    how: How = "passed" if serves else "failed"
    return Test(host.name, f"{server.name} serves to the end", how, 0.0, "" if serves else why)


def take(report: Report, suite: str, path: Path, ended: Ended) -> None:
    """A client's checks as tests; one that has left no document, or that of another end, is a
    failure, and one that could prove nothing a problem."""
    try:
        document = json.loads(path.read_text()) if path.exists() else {"outcome": "missing"}
    except ValueError as error:
        document = {"outcome": f"cut or foreign: {error}"}
    if ended.exit_code != EXIT_CODES.get(document["outcome"]):
        why = f"{suite} ended with exit code {ended.exit_code}, and its document is "
        why += f"{document['outcome']}\n{ended.output[-3000:]}"
        report.tests.append(Test(BOTH, suite, "failed", 0.0, why))
        return
    checks = _of_load(document) if suite == "load" else _of_recall(document)
    report.tests += [Test(BOTH, f"{suite}: {name}", how, 0.0, said) for name, how, said in checks]
    # What the engines have registered is compared here, with the logs of both.
    report.caveats += [caveat for caveat in document["caveats"] if caveat != NOT_COMPARED]
    if document["outcome"] == "INCOMPLETE":
        report.problems.append(f"{suite}: {document['verdict'].removeprefix('INCOMPLETE: ')}")


def _of_load(document: Mapping[str, Any]) -> Iterator[tuple[str, How, str]]:
    for phase in document["phases"]:
        for name, how, seen in _checks(phase["checks"]):
            yield f"{phase['name']}: {name}", how, seen
    if document["stopped"]:
        yield "to its end", "failed", document["stopped"]


def _of_recall(document: Mapping[str, Any]) -> Iterator[tuple[str, How, str]]:
    lost = [(words, hit) for words, _seed, _needle, hit in document["lost"]]
    for row in document["rows"]:
        name = f"{row['words']} words, local hit {row['hit']}"
        gone, failed = lost.count((row["words"], row["hit"])), sum(row["failed"].values())
        said = f"{row['asked']} asked, found {row['found']}, lost {gone}, failed {failed}, "
        said += f"the same words {row['same']}"
        if document["compares"] == "same words":
            gone, could_be = row["asked"] - row["same"], document["outcome"] != "INCOMPLETE"
        else:
            could_be = 2 * row["found"]["control"] >= row["asked"]
        yield name, "failed" if gone or failed else "passed" if could_be else "not run", said
    yield from _checks(document["checks"])
    yield "as a whole", _HOW[document["outcome"]], document["verdict"]


def _checks(checks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, How, str]]:
    for check in checks:
        yield check["name"], _ENDED[check["passed"]], check["seen"]
