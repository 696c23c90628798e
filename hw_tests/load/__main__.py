"""``python -m hw_tests.load``: start servers, send a trace, disturb the engines, report."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from hw_tests.child import ChildFailed
from hw_tests.load.acts import ACTS
from hw_tests.load.boot import boot_lines
from hw_tests.load.page import lines, page, verdict
from hw_tests.load.run import Phase, Plan, Run, Servers, document
from hw_tests.load.send import Limits, requests_of
from hw_tests.load.servers import Server
from hw_tests.load.verified import WANTED, verifies
from hw_tests.option_types import (
    command,
    count,
    factor,
    json_file,
    parsed,
    port,
    seconds,
    share,
    url,
)
from hw_tests.outcome import EXIT_CODES, NOT_COMPARED, USUAL_GAP
from hw_tests.registered import compare
from hw_tests.same_server import same_server
from hw_tests.sealed import discard, seal, sums_beside
from sim.errors import UsageError

_FIRST = {"requests": 20, "max_prompt_tokens": 2000, "max_output_tokens": 32, "deadline": 900.0}
"""What fits one machine and a quarter of an hour."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every check passed, 1 if one did not or the run had to stop, 3 if one had
    nothing to look at, 2 if it could not begin, 130 if it was interrupted; no server is left in any
    case."""
    parser = _parser()
    options = parsed(parser, arguments)
    servers = _servers(options)
    try:
        _discard(servers, options)
    except OSError as error:
        parser.error(str(error))
    for name, value in _FIRST.items():
        if getattr(options, name) is None:
            setattr(options, name, value if options.first else _ALL[name])
    if wrong := _wrong(options):
        parser.error(wrong)
    plan = _plan(options)
    try:
        requests_of(plan.trace, plan.limits, seed=0)
    except (UsageError, ValueError, OSError, OverflowError) as error:
        parser.error(str(error))
    try:
        found = asyncio.run(_run(plan, servers, options))
    except (KeyboardInterrupt, asyncio.CancelledError):
        parser.exit(130, "interrupted; all servers have been ended\n")
    finally:
        for server in servers.all():
            server.kill()
    found["boot"] = {server.name: boot_lines(server.log) for server in servers.all()}
    told = {name: process.told() for name, process in servers.engines().items()}
    evidence = compare(told, elsewhere=() if options.decode else ("decode",))
    found["registered"] = evidence.document()
    if not evidence.passed:
        found["outcome"] = "FAIL"
    if len(evidence.sides) < 2:
        found["caveats"].append(NOT_COMPARED)
    logs = [server.log for server in servers.all() if server.log.exists()]
    found |= {"passed": found["outcome"] == "pass", "verdict": verdict(found)}
    sums = sums_beside(options.out)
    digest = seal(found, options.out, page, [plan.trace, *logs], sums)
    print("\n".join([*lines(found), f"{digest}  {options.out}; sha256sum -c {sums.name}"]))
    return EXIT_CODES[found["outcome"]]


def _discard(servers: Servers, options: argparse.Namespace) -> None:
    """Remove what an earlier run has left here: its logs would be evidence of this one."""
    discard(options.out)
    for server in servers.all():
        server.log.unlink(missing_ok=True)


def _wrong(options: argparse.Namespace) -> str:
    """With what it cannot begin, and the remedy."""
    commands = [command for command in (options.prefill, options.decode) if command is not None]
    if not options.unverified and not all(map(verifies, commands)):
        return f"--prefill and --decode do not both set {WANTED}; do, or say --unverified"
    if not options.decode and (far := [name for name in options.act or [] if _is_on_decode(name)]):
        return f"--act {far[0]} needs --decode: only an engine that is started here is struck"
    if same_server(options.control_url, options.decode_url):
        return (
            f"--control-url {options.control_url} answers from what was handed over; "
            "name a colocated server"
        )
    return ""


_ALL = {"requests": 200, "max_prompt_tokens": 16_000, "max_output_tokens": 256, "deadline": 7200.0}


async def _run(plan: Plan, servers: Servers, options: argparse.Namespace) -> dict[str, Any]:
    """The document; what stopped the run is in it. SIGTERM cancels it."""
    task = asyncio.current_task()
    assert task is not None
    # An exception in a handler of a signal would be lost if it came while a server is forked.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    phases: list[Phase] = []
    stopped = None
    # A session of ours would use a connection again that died with a server.
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    timeout = aiohttp.ClientTimeout(total=plan.answer_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        run = Run(plan, servers, session)
        try:
            async with asyncio.timeout(options.deadline):
                await run.start()
                async for phase in run.phases():
                    phases.append(phase)
                    print(f"{phase.name}: done", file=sys.stderr, flush=True)
        except TimeoutError:
            stopped = f"--deadline: not done within {options.deadline:g} s"
        except (ChildFailed, ValueError) as error:
            stopped = str(error)
        return document(plan, phases, await run.counters(), stopped, run.engines)


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        trace=options.trace,
        limits=Limits(
            requests=options.requests,
            max_prompt_tokens=options.max_prompt_tokens,
            max_output_tokens=options.max_output_tokens,
            time_scale=options.time_scale,
            vocab_size=options.vocab_size,
        ),
        acts=options.act or (["killed"] if options.first else _possible(options)),
        away_s=options.away,
        answer_s=options.answer_within,
        settle_s=options.settle_within,
        start_s=options.start_within,
        acceptance_gap=options.acceptance_gap,
        exact=options.exact,
        is_verified=not options.unverified,
        has_drafts=not options.no_drafts,
    )


def _possible(options: argparse.Namespace) -> list[str]:
    return [name for name in ACTS if options.decode or not _is_on_decode(name)]


def _is_on_decode(act: str) -> bool:
    return ACTS[act].on == "decode"


def _servers(options: argparse.Namespace) -> Servers:
    logs = options.out.parent
    given = {
        name: Server(name, getattr(options, name), getattr(options, f"{name}_url"), logs)
        for name in ("prefill", "decode", "control")
    }
    words = [sys.executable, "-m", "hw_tests.router", "--host", "127.0.0.1"]
    words += ["--port", str(options.router_port), "--timeout", str(options.answer_within)]
    words += ["--prefill", options.prefill_url, "--decode", options.decode_url]
    url = f"http://127.0.0.1:{options.router_port}"
    return Servers(**given, router=Server("router", shlex.join(words), url, logs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m hw_tests.load",
        allow_abbrev=False,  # of what hw_tests.cluster looks for
        description="Send a trace through a router and to a control, and disturb the engines.",
    )
    add = parser.add_argument
    add("--trace", type=Path, required=True, help="of Mooncake's form")
    for name in ("prefill", "decode", "control"):
        is_needed = name == "prefill"  # which is killed
        elsewhere = "" if is_needed else "; none: somebody else starts it"
        add(f"--{name}", type=command, required=is_needed, metavar="COMMAND",
            help=f"such as 'vllm serve ...'{elsewhere}")  # fmt: skip
        add(f"--{name}-url", type=url, required=True, metavar="URL",
            help="where it serves, without /v1")  # fmt: skip
    add("--router-port", type=port, required=True, metavar="PORT", help="for the router")
    add("--first", action="store_true", help="one act and limits for a quarter of an hour")
    add("--act", action="append", choices=sorted(ACTS), help="what to do to an engine (all)")
    for name in ("requests", "max-prompt-tokens", "max-output-tokens"):
        key = name.replace("-", "_")
        add(f"--{name}", type=count, metavar="N", help=f"({_ALL[key]}; --first: {_FIRST[key]})")
    add("--deadline", type=seconds, metavar="S",
        help=f"for all ({_ALL['deadline']:g}; --first: {_FIRST['deadline']:g})")  # fmt: skip
    for name, value, what in (
        ("away", 20.0, "that the engine is gone"),
        ("answer-within", 120.0, "for a request, errors included"),
        ("settle-within", 180.0, "until all blocks are free; above the longest lease"),
        ("start-within", 600.0, "until a server is ready"),
    ):
        add(f"--{name}", type=seconds, default=value, metavar="S", help=f"{what} (%(default)s)")
    add("--time-scale", type=factor, default=1.0, help="0.1: ten times as fast (%(default)s)")
    add("--vocab-size", type=count, default=32_000, help="of the model, at most (%(default)s)")
    add("--acceptance-gap", type=share, default=USUAL_GAP, metavar="SHARE",
        help="by which fewer drafts may be accepted (%(default)s)")  # fmt: skip
    add("--no-drafts", action="store_true", help="the engines do not speculate")
    add("--exact", action="store_true", help="an answer that is not the control's is a failure")
    add("--unverified", action="store_true", help=f"do not insist on {WANTED}")
    add("--out", type=json_file, required=True, metavar="JSON", help="page and logs go beside it")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
