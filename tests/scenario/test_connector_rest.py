"""What the connector keeps for requests and peers is gone when they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from connector_rest import Rest
from requirement_rows import PAGE, rows

from faults.running import run
from faults.schedule import parse
from sim.engine.connectors import CONNECTORS
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.workload import Segment

PHASES = ("queued_at_p", "prefill", "handoff", "queued_at_d", "allocated", "decode")
DISTURBANCES: dict[str, tuple[dict[str, str], list[str]]] = {
    "nothing": ({}, []),
    "aborts": (
        {
            "router.aborts": "["
            + ", ".join(f"{{request: req-{n + 1}, on_phase: {p}}}" for n, p in enumerate(PHASES))
            + "]"
        },
        [],
    ),
    "expiry": (
        {"router.holds": "[{request: req-1, seconds: 8}]"},
        ["hand-off-lost:request=req-3"],
    ),
    "failed-reads": ({}, ["completion-error:at_s=10,count=2", "wrong-params:at_s=10.4"]),
    "repeated-messages": ({}, ["message-duplicated:count=null"]),
    "lost-messages": ({}, ["message-dropped:at_s=10,count=6"]),
}


def undisturbed_first(num: int) -> InlineWorkload:
    """One request, ten seconds of silence, and the others."""
    return InlineWorkload(
        tuple(
            InlineRequest(
                f"req-{n}", (Segment(n, 200 + n),), 8, arrival_s=0.0 if n == 0 else 10 + 0.1 * n
            )
            for n in range(num)
        )
    )


def grown(connector: str, model: str, disturbance: str) -> dict[str, Any]:
    """What is larger at the end of a run than it was between two requests."""
    settings, faults = DISTURBANCES[disturbance]
    plain = Scenario(model=model, workload=undisturbed_first(8), quiet_phase_s=40.0)
    scenario = with_settings(
        plain,
        {
            "connector": connector,
            "extra_config": "{defer_timeout: 3, transfer_timeout: 4}",
            **settings,
        },
    )
    listed: list[Any] = [msgspec.to_builtins(parse(fault)) for fault in faults]
    scenario = msgspec.structs.replace(scenario, faults=listed)
    rest = Rest(CONNECTORS[connector].roots[0])
    run(scenario, prepare=rest)
    return rest.grown()


@pytest.mark.requirement("R17", "R18")
@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("model", ["llama", "kimi-linear"])
def test_everything_is_back_to_its_idle_size(model: str, disturbance: str) -> None:
    """Every dict, list, set, queue and socket of the scheduler's and the worker's half of both
    engines; whatever happened to the requests."""
    assert grown("hybrid", model, disturbance) == {}


def test_the_page_says_what_upstream_keeps() -> None:
    """After requests whose clients went away; but for a memory of limited length."""
    kept = {path.split()[1] for path in grown("moriio", "llama", "aborts")}
    kept -= {"MoRIIOWrapper._terminal_transfer_ids"}
    (cell,) = (row.upstream for row in rows(PAGE.read_text()) if row.name == "R18")
    assert cell == f"red: keeps {', '.join(sorted(kept))}"
