"""``faultlab run``: one run, from a scenario file, from options, or both."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog
import typer

from faults import artifact
from faults.cli.options import RunOptions, build_scenario
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from faults.cli.run_summary import render_run
from faults.cli.simulate import simulate
from faults.directories import DEFAULT_PARENT
from faults.wording import replay_line
from sim.errors import MisplacedError, UsageError
from sim.outcome import RunResult, Verdict
from sim.scenario import Scenario

EXIT_CODES: dict[Verdict, ExitCode] = {
    "pass": ExitCode.OK,
    "violation": ExitCode.VIOLATION,
    "incomplete": ExitCode.BAD_USAGE,
}

ScenarioArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO", help="A scenario file, or the name of a shipped one (late-hand-off)."
    ),
]
Model = Annotated[str | None, typer.Option(help="The model (see faultlab models).")]
Connector = Annotated[
    str | None,
    typer.Option(help="A known connector (see faultlab connectors) or package.module:Class."),
]
Overlay = Annotated[
    Path | None, typer.Option(help="A directory, such as a vLLM checkout, whose sources win.")
]
Trace = Annotated[Path | None, typer.Option(help="A Mooncake (JSON lines) or Azure (CSV) trace.")]
Requests = Annotated[
    int | None, typer.Option(help="The first N of the trace, or N generated ones.")
]
Holds = Annotated[
    list[str] | None,
    typer.Option(metavar="REQUEST=SECONDS", help="Hold a request back between prefill and decode."),
]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="KIND:KEY=VALUE,...",
        help="Inject a fault (see faultlab faults); can be given several times.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any key of the scenario, such as tp_size=2; faultlab schema has all keys.",
    ),
]
FabricOption = Annotated[
    str | None, typer.Option(metavar="NAME|FILE.toml", help="How fast the RDMA network is.")
]
SeedOption = Annotated[int | None, typer.Option(min=0, help="The seed of everything random.")]
Check = Annotated[
    Literal["incremental", "full"] | None,
    typer.Option(help="Compare only what changed, or everything in every step."),
]
Perturb = Annotated[
    bool, typer.Option("--perturb", help="Draw the order of simultaneous events as well.")
]
ExtraConfig = Annotated[
    str | None, typer.Option(metavar="JSON", help="Added to kv_connector_extra_config.")
]
Out = Annotated[Path | None, typer.Option(help="Write the artifact here, whatever the verdict.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what --out names.")]


def command(
    scenario: ScenarioArgument = None,
    model: Model = None,
    connector: Connector = None,
    overlay: Overlay = None,
    fabric: FabricOption = None,
    trace: Trace = None,
    requests: Requests = None,
    hold: Holds = None,
    fault: Faults = None,
    setting: Settings = None,
    seed: SeedOption = None,
    check: Check = None,
    perturb: Perturb = False,
    extra_config: ExtraConfig = None,
    out: Out = None,
    force: Force = False,
    json: JsonFlag = False,
) -> Outcome:
    """Run one scenario and judge it.

    A failing run is always written to a directory, from which faultlab replay runs it again.

    \b
    Examples:
      faultlab run late-hand-off
      faultlab run --requests 60 --set length_scale=0.1
      faultlab run my.yaml --seed 7 --hold req-3=65 --out runs/held
      faultlab run --trace conversation.jsonl --requests 200 --set time_scale=0.1
      faultlab run --fabric mi300x-thor2
      faultlab run --set tp_size=2 --set executor=multi-process
      faultlab run --fault completion-lost:request=req-2 --fault crash:node=p0,at_s=1,for_s=5
      faultlab run --connector my.package.connector:MyConnector --extra-config '{"port": 9}'

    Exit code 0: no violation; 1: violation; 2: bad usage, or max_virtual_s came before all
    requests were sent; 3: the testbed failed.
    """
    options = RunOptions(
        scenario=scenario,
        model=model,
        connector=connector,
        overlay=overlay,
        fabric=fabric,
        trace=trace,
        requests=requests,
        holds=tuple(hold or ()),
        faults=tuple(fault or ()),
        settings=tuple(setting or ()),
        seed=seed,
        check=check,
        perturb=perturb,
        extra_config=extra_config,
    )
    source = scenario if options == RunOptions(scenario=scenario) else None
    built = build_scenario(options)
    try:
        return _run(built, source, out, force=force, as_json=json)
    except MisplacedError as error:
        given = _hold_about(error, built, options)
        if given is None:
            raise
        raise UsageError(f"--hold {given}: {error}") from error


def _hold_about(error: MisplacedError, scenario: Scenario, options: RunOptions) -> str | None:
    """The ``--hold`` by which ``scenario`` holds the request that ``error`` is about."""
    match error.keys:
        case ("router", "holds", int(number), _):
            request = scenario.router.holds[number].request
            given = [text for text in options.holds if text.startswith(f"{request}=")]
            return given[-1] if given else None
    return None


def _run(
    scenario: Scenario, source: str | None, out: Path | None, *, force: bool, as_json: bool
) -> Outcome:
    if force and out is None:
        raise UsageError("--force: overwrites what --out names, and there is no --out")
    if out is not None:
        artifact.check_vacant(out, force=force)
    faulted = simulate(scenario, source=source)
    result = faulted.result
    saved = save(scenario, result, out, force=force)
    if as_json and saved is not None and result.outcome.violations:
        structlog.get_logger().warning(f"replay with: {replay_line(saved)}")
    return Outcome(
        document=msgspec.to_builtins(result.outcome) | faulted.document(),
        render=partial(render_run, scenario=scenario, result=result, saved=saved),
        exit_code=EXIT_CODES[result.outcome.verdict],
    )


def save(scenario: Scenario, result: RunResult, out: Path | None, *, force: bool) -> Path | None:
    """Write the artifact if the run failed or ``out`` asks for it; None if there is none."""
    if out is not None:
        _write(out, scenario, result, force=force)
        return out
    return save_unasked(scenario, result) if result.outcome.violations else None


def save_unasked(scenario: Scenario, result: RunResult) -> Path | None:
    """Write the artifact below the current directory; None, and a warning, if that cannot be.

    A directory that nobody asked for must not cost the verdict.
    """
    parent = Path(DEFAULT_PARENT)
    directory = artifact.default_directory(scenario, result.outcome.event_hash, parent)
    try:
        _write(directory, scenario, result, force=False)
    except UsageError as error:
        structlog.get_logger().warning(str(error))
        return None
    return directory


def _write(directory: Path, scenario: Scenario, result: RunResult, *, force: bool) -> None:
    """The artifact, and of a run that broke a rule its report, which is what people open first."""
    artifact.write(directory, scenario, result, command_line=sys.argv, force=force)
    report = directory / artifact.REPORT_FILE
    report.unlink(missing_ok=True)
    if result.outcome.violations:
        from faults.report import run_page  # noqa: PLC0415  # not needed by runs that pass

        report.write_text(run_page(directory), encoding="utf-8")
