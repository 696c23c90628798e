"""What runs, and how it is run again, as people read it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from sim.engine.connectors import get_connector
from sim.fabric import CX7
from sim.scenario import Scenario
from sim.scenario.workloads import EPILOGUE
from sim.units import MS, SECOND, US

_EPILOGUE = re.compile(rf"\b{EPILOGUE}\b")


def folded(text: str) -> str:
    """``text``, with what it says several times over, part after part, counted."""
    counts = [(part, len(list(same))) for part, same in groupby(text.split("; "))]
    return "; ".join(f"{part} ({n} times)" if n > 1 else part for part, n in counts)


def for_people(text: str) -> str:
    """``text`` folded, with a word on what an epilogue is where it names one, unless it says so."""
    text = folded(text)
    if not _EPILOGUE.search(text) or "nothing was broken any more" in text:
        return text
    return f"{text} ({EPILOGUE}: sent when nothing is broken any more, and has to succeed)"


def short_time(time_ns: int) -> str:
    """A time or a duration with three digits or more, in the unit that fits."""
    for unit_ns, name in ((SECOND, "s"), (MS, "ms"), (US, "µs")):
        if time_ns >= unit_ns:
            return f"{time_ns / unit_ns:.4g} {name}"
    return f"{time_ns} ns" if time_ns else "0 s"


def replay_line(directory: Path, overlay: Path | None = None) -> str:
    """The command that runs an artifact again, with the sources in ``overlay`` if that is given."""
    patched = [] if overlay is None else ["--overlay", str(overlay)]
    return shlex.join(["faultlab", "replay", str(directory), *patched])


def shrink_line(directory: Path) -> str:
    """The command that looks for the smallest scenario that fails like an artifact."""
    return shlex.join(["faultlab", "shrink", str(directory)])


def what_runs(scenario: Scenario) -> str:
    """Model, geometry, connector and engines in one line."""
    topology, engine = scenario.topology, scenario.engine
    engines = (
        "1 colocated engine"
        if topology.colocated
        else f"{topology.producers}P{topology.consumers}D with {_connectors(scenario)}"
    )
    more = "".join(f", {what}" for what in _unusual(scenario))
    return (
        f"{scenario.model} ({scenario.geometry} geometry) on {engines}, TP {engine.tp_size}, "
        f"{engine.executor}{more}"
    )


def _connectors(scenario: Scenario) -> str:
    of_producers, of_consumers = scenario.producer_connector, scenario.connector
    if of_producers == of_consumers:
        return of_consumers
    return f"{of_producers} on producers and {of_consumers} on consumers"


def _unusual(scenario: Scenario) -> Iterator[str]:
    """What is not as it is by default and changes what code runs."""
    topology, engine = scenario.topology, scenario.engine
    if not topology.colocated and get_connector(scenario.producer_connector).writes(
        scenario.extra_config
    ):
        yield "WRITE mode"
    if engine.model_runner != "v2":
        yield f"model runner {engine.model_runner.upper()}"
    consumer_ranks = topology.consumer_data_parallel_size or engine.data_parallel_size
    if consumer_ranks != engine.data_parallel_size:
        yield f"DP {engine.data_parallel_size} and {consumer_ranks} (producers, consumers)"
    elif engine.data_parallel_size > 1:
        yield f"DP {engine.data_parallel_size}"
    if topology.nodes == "shared":
        yield "one shared machine"
    if scenario.speculation is not None:
        drafts = scenario.speculation.num_speculative_tokens
        yield f"speculation {scenario.speculation.method} × {drafts}"
    if scenario.fabric_profile != CX7:
        yield f"fabric {scenario.fabric_profile.name}"
    if scenario.overlay:
        yield f"sources from {scenario.overlay}"
