"""Synchronous loads that failed: of a model with several cache groups, the step's end is right.

vLLM can fail a single request for a synchronous load only where the model has one cache group.
Otherwise a connector has to end the step, and the engine with it, rather than let a forward use
what is not there. This excuses that end and the requests that it took along, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.engine.connectors import get_connector
from sim.kernel.log import Record
from sim.model.presets import get_preset
from sim.oracles import Violation
from sim.scenario import Scenario


def without_failed_steps(
    violations: Sequence[Violation], records: Iterable[Record], scenario: Scenario
) -> tuple[list[Violation], list[Violation]]:
    """The violations of a run that count, and those that say that a step was ended as it had to be.

    Args:
        violations: of a run.
        records: of its event log.
        scenario: of the run.
    """
    words = get_connector(scenario.connector).step_failure
    if not violations or not words or get_preset(scenario.model).num_groups == 1:
        return list(violations), []
    ended = {
        record.fields["node"]
        for record in records
        if record.kind == "engine-died" and words in record.fields["reason"]
    }
    counting: list[Violation] = []
    excused: list[Violation] = []
    for violation in violations:
        match violation.evidence:
            case {"kind": "engine-died"}:
                is_excused = violation.node in ended
            case {"kind": "not-recovered", "outcome": "engine-died"}:
                is_excused = bool(ended)  # another engine's death is reported by itself
            case _:
                is_excused = False
        (excused if is_excused else counting).append(violation)
    return counting, excused
