from __future__ import annotations

import pytest

from faults.cli.run_summary import mode_hint
from faults.wording import what_runs
from sim.engine.options import EngineOptions
from sim.kernel.log import Record
from sim.model.speculation import Speculation
from sim.scenario import Scenario
from sim.scenario.types import Topology


def test_the_line_of_a_default_run_is_short() -> None:
    """Nothing is said of what is as always."""
    assert what_runs(Scenario()) == (
        "llama (reduced geometry) on 1P1D with moriio, TP 1, single-process"
    )


def test_what_is_not_as_always_is_said() -> None:
    """All that changes which code runs."""
    scenario = Scenario(
        extra_config={"read_mode": "false"},
        topology=Topology(nodes="shared", consumer_data_parallel_size=4),
        engine=EngineOptions(
            model_runner="v1",
            data_parallel_size=2,
            speculation=Speculation(method="mtp", num_speculative_tokens=3),
        ),
    )
    assert what_runs(scenario).partition("single-process, ")[2] == (
        "WRITE mode, model runner V1, DP 2 and 4 (producers, consumers), one shared machine, "
        "speculation mtp × 3"
    )


def test_one_size_for_all_is_said_once() -> None:
    """Of the data-parallel groups."""
    assert what_runs(Scenario(engine=EngineOptions(data_parallel_size=2))).endswith(", DP 2")


DIED = Record(
    12, "p0", "engine-died",
    {"reason": "ValueError: request_id 'req-0-p0' does not embed a peer zmq_address in the"},
)  # fmt: skip


def test_an_engine_that_was_not_told_its_mode_is_perhaps_no_defect() -> None:
    """Of a connector that faultlab does not know: what to give it is said."""
    hint = mode_hint(Scenario(connector="mykv.connector:Mine"), [DIED])
    assert hint is not None
    assert """--extra-config '{"read_mode": "true", "http_port": 8000}'""" in hint


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (Scenario(), DIED.fields["reason"]),
        (
            Scenario(connector="mykv:Mine", extra_config={"read_mode": "true"}),
            DIED.fields["reason"],
        ),
        (Scenario(connector="mykv:Mine"), "RuntimeError: mine"),
    ],
)
def test_other_deaths_have_no_such_hint(scenario: Scenario, reason: str) -> None:
    """A known connector, a mode that was given, another error."""
    assert mode_hint(scenario, [DIED._replace(fields={"reason": reason})]) is None
