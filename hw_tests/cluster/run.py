"""The stages of a run: connect, examine, what each host does alone, what the two do together."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import pytest

from hw_tests.cluster import facts
from hw_tests.cluster.agent import OUT
from hw_tests.cluster.options import Options
from hw_tests.cluster.reach import command_by_hand, local_command, typed_there
from hw_tests.cluster.remote import HostLost, RemoteHost
from hw_tests.cluster.report import BOTH, HERE, Report, Test, read_junit
from hw_tests.cluster.suites import ALONE, NOT_OF_A_RUN, SERVED, SUITES, combined
from hw_tests.outcome import ONE_HOST, OTHER_VERSIONS
from hw_tests.process.arms import PRELOADED
from hw_tests.process.host_pair import HostPair
from hw_tests.process.messages import HOST, Role

_ROOT = Path(__file__).parents[2]
_NOW = (
    "# those two are for this run only: {} waits for them; when it has ended they do, too, "
    "with exit code 1, however the tests went"
)
_ONCE = (
    "# nothing waits for those two now: without --print the launcher prints two that are good for "
    "as long as it runs"
)
_PORTS = 3
"""Of an engine: handshakes, releases, mori's own."""
Hosts = Mapping[Role, RemoteHost]


class NotReady(Exception):
    """A host is not reached, lacks something, or is not as the other."""


def commands(options: Options) -> list[str]:
    """What a person types on the hosts: for both roles, and what each host does alone."""
    settings = options.settings
    lines = []
    for role, target in options.targets.items():
        lines += [f"# {role} on {target.name}", command_by_hand(settings, target)]
    if settings.way == "hand":
        lines.append(_ONCE if options.only_print else _NOW.format(settings.answer_at))
    if options.suite in SERVED:
        return lines
    if SUITES[options.suite].each_host:
        alone = [settings.python, "-m", "pytest", *_alone(options)]
        lines += _on_each(options, "without the other", alone)
    return lines + (_by_themselves(options) if options.only_print else [])


def _on_each(options: Options, what: str, words: Sequence[str]) -> list[str]:
    lines = []
    for target in {target.name: target for target in options.targets.values()}.values():
        lines += [f"# on {target.name}, {what}", typed_there(options.settings, target, words)]
    return lines


def _by_themselves(options: Options) -> list[str]:
    """What is no suite, as it needs hours or a model that is served on both hosts."""
    python = options.settings.python
    producer, consumer = (target.address for target in options.targets.values())
    router = [sys.executable, "-m", "hw_tests.router", "--port", "8080", "--prefill"]
    router += [f"http://{producer}:8000", "--decode", f"http://{consumer}:8000"]
    recall = [sys.executable, "-m", "hw_tests.recall", "--url", "http://127.0.0.1:8080"]
    recall += [
        "--control-url",
        f"http://{producer}:8000",
        "--words",
        "2000,8000,32000,96000,300000",
    ]
    recall += ["--out", "recall.json"]
    memory = "gpu" if options.arm == "rocm" else "cpu"
    calibration = [python, "-m", "hw_tests.calibration", "--arm", options.arm]
    calibration += ["--memory", memory, "--out", "calibration"]
    return [
        "# the tests between the two have no command of their own: only this launcher runs them",
        *_on_each(options, "how fast mori is there", calibration),
        "# here, when vllm serve runs on both, at port 8000 (docs/hardware.md, End to end)",
        *(f"cd {shlex.quote(str(_ROOT))} && {shlex.join(words)}" for words in (router, recall)),
    ]


def _alone(options: Options) -> list[str]:
    words = combined(SUITES[options.suite].each_host, options.narrowed)
    return ["-q", *ALONE, "-p", "no:cacheprovider", f"--arm={options.arm}", *words]


def connect(options: Options, stack: ExitStack) -> Hosts:
    """Start the far side of both roles; ``stack`` ends them."""
    hosts: dict[Role, RemoteHost] = {}
    for role, target in options.targets.items():
        command = local_command(options.settings, target)
        logs = options.out / f"{role.removeprefix('kv_')}-{target.name}"
        hosts[role] = RemoteHost(target.name, target.address, command, logs)
        stack.callback(hosts[role].close)
    return hosts


def examine_hosts(options: Options, hosts: Hosts, report: Report) -> None:
    """Raises NotReady."""
    try:
        for role, host in hosts.items():
            report.hosts[role] = host.facts(options.arm)
            host.preload(PRELOADED)
        out_of_reach = unreached(list(hosts.values()))
    except AssertionError as error:  # it is lost, or has sources that know no such request
        raise NotReady(str(error)) from None
    roles = _one_role_of_each(hosts, report)
    report.caveats += [ONE_HOST] if len(roles) < len(hosts) else []
    lacks = (  # each role, as two of one machine may have other containers and variables
        f"{told['host']} lacks {line}"
        for told in report.hosts.values()
        for line in facts.missing(told)
    )
    problems = list(dict.fromkeys(lacks))
    report.tests_on = tests_on = facts.of_the_tests()
    if other := facts.other_versions(tests_on, report.hosts[roles[0]]):
        report.caveats.append(OTHER_VERSIONS.format("; ".join(other)))
    differ = facts.differences(report.hosts)
    for role in roles:
        differ += facts.differences({"the tests": tests_on, role: report.hosts[role]}, ["sources"])
    problems += [f"hosts differ: {line}" for line in differ]
    problems += out_of_reach
    if options.arm == "sim" and len(roles) > 1:
        problems.append("the arm sim shares memory between engines, so it needs one machine")
    if problems:
        raise NotReady("\n".join(problems))


def unreached(hosts: Sequence[RemoteHost]) -> list[str]:
    """Which host gets no connection to ports of another one as engines take them."""
    problems = []
    for host, other in itertools.permutations(hosts, 2):
        if why := host.unreached(other.address, other.listen(_PORTS)):
            problems.append(
                f"{host.name} does not reach {other.name} at {why}; needed: connections to every "
                f"port above 32768; fix: open them, or name another address: {other.name}=ADDRESS"
            )
    return problems


def _one_role_of_each(hosts: Hosts, report: Report) -> list[Role]:
    """Of two roles on one machine only the first."""
    by_boot = {report.hosts[role]["boot"]: role for role in reversed(list(hosts))}
    return [role for role in hosts if role in by_boot.values()]


def run_each(options: Options, hosts: Hosts, report: Report) -> None:
    """What needs one host, on all of them at once."""
    if not SUITES[options.suite].each_host:
        return
    arguments = _alone(options)
    deadline_s = options.settings.deadline_s
    roles = _one_role_of_each(hosts, report)
    print(f"on each of {len(roles)} hosts: pytest {shlex.join(arguments)}", flush=True)
    pool = ThreadPoolExecutor(len(roles))
    words = ["-m", "pytest", f"--junitxml={OUT}/junit.xml", *arguments]
    runs = {role: pool.submit(hosts[role].run, "pytest", words, deadline_s) for role in roles}
    pool.shutdown(wait=False)
    for role, run in runs.items():
        try:
            done = run.result()
        except HostLost as error:
            raise NotReady(str(error)) from None
        name = hosts[role].name
        print(f"{name}: {(done.output.strip().splitlines() or ['nothing'])[-1]}", flush=True)
        junit = done.files.get("junit.xml", b"").decode()
        take(report, junit, name, done.exit_code, done.output)


def run_pair(options: Options, hosts: Hosts, report: Report) -> None:
    """Producer and consumer; the tests run here.

    Raises:
        KeyboardInterrupt: pytest was interrupted.
    """
    print("between the two hosts:", flush=True)
    junit = options.out / "pair.xml"
    local = all(host.address == HOST for host in hosts.values())
    arguments = [f"--rootdir={_ROOT}", f"-c={_ROOT / 'pyproject.toml'}", *ALONE[1:]]
    arguments += ["-p", "no:cacheprovider"]
    arguments += ["-p", "no:xdist"]  # its processes would not know the hosts
    arguments += [f"--arm={options.arm}", f"--junitxml={junit.absolute()}"]
    arguments += combined(SUITES[options.suite].both, options.narrowed)
    plugin = HostPair(hosts, on_this_machine=local)
    for name in NOT_OF_A_RUN:
        os.environ.pop(name, None)
    interrupts = _Interrupts()
    code = pytest.main(arguments, plugins=[_Named(plugin), _Sides(), interrupts])
    if interrupts.seen:
        raise KeyboardInterrupt
    text = junit.read_text() if junit.exists() else ""
    take(report, text, BOTH, int(code), "")


def examine_again(hosts: Hosts, report: Report) -> None:
    """Of the sources, as each process reads them when it starts."""
    for role, host in hosts.items():
        try:
            now = host.facts("sim")  # without the preflight, which takes minutes
        except AssertionError as error:  # it is lost
            report.problems.append(str(error))
            continue
        changed = facts.differences({"its start": report.hosts[role], "its end": now}, ["sources"])
        report.problems += [f"changed during the run, {host.name}: {line}" for line in changed]


class _Sides:
    """Tells in what pytest writes which tests have engines, without which there are no sides.

    One that passes and has given no command to an engine of either has tested nothing between them.
    """

    _TOLD = (BOTH, "engines")

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if "engines" in getattr(item, "fixturenames", ()):
            item.user_properties.append(self._TOLD)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        if self._TOLD not in item.user_properties:
            return (yield)
        engines = getattr(item, "funcargs", {})["engines"]
        engines.asked.clear()  # of what fixtures have asked
        yield  # what fails goes on from here
        if engines.asked != {*get_args(Role)}:
            item.user_properties.remove(self._TOLD)
        return None


class _Interrupts:
    """Tells a signal from pytest's own end: it calls a failed collection interrupted, too."""

    seen = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.seen |= excinfo.type is KeyboardInterrupt


class _Named:
    """Registers a plugin under its name, which ``pytest.main`` cannot."""

    def __init__(self, plugin: HostPair) -> None:
        self._plugin = plugin

    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(self._plugin, HostPair.NAME)


def take(report: Report, junit: str, where: str, exit_code: int, output: str) -> None:
    """What a run of pytest has told; one that failed without telling a failure is a failure, and
    one that ran nothing there is a problem."""
    tests = read_junit(junit, where)
    if exit_code not in (0, 5) and not any(test.how == "failed" for test in tests):
        why = f"pytest ended with exit code {exit_code}\n{output[-3000:]}"
        tests.append(Test(where, "pytest", "failed", 0.0, why))
    report.tests += tests
    if all(test.how == "not run" or (test.how, test.where) == ("passed", HERE) for test in tests):
        place = "between the two" if where == BOTH else f"on {where} alone"
        report.problems.append(
            f"no test ran {place} (pytest ended with exit code {exit_code}): narrow the "
            "tests less, or name a --suite that has none there"
        )
