"""The canary: a planted defect that every campaign has to notice before its seeds count.

A harness that notices nothing is green. So each campaign first gives its workers a connector that
is known to be wrong, the reference connector with one line changed; if no rule says so, nothing
that the workers say about the connector under test is worth anything.
"""

from __future__ import annotations

from typing import Any

from faults.campaign.executor import Executor
from faults.campaign.result import SeedResult
from faults.campaign.worker import Job
from faults.mutants.mutant import Mutant
from sim.errors import TestbedError

CANARY = Mutant(
    name="canary",
    breaks="The last block that is loaded is left as it was.",
    connector="reference",
    module="sim.reference.connector",
    qualname="_placement",
    right="for place in range(first, last) if",
    wrong="for place in range(first, last - 1) if",
    settings={"perturb": "false"},
)
_SEED = 0


class CanaryNotNoticed(TestbedError):
    """The workers ran a wrong connector, and no rule was broken."""


def sing(executor: Executor) -> dict[str, Any]:
    """Let ``executor`` run the canary.

    Returns:
        The seed and the groups of failures that it fell into.

    Raises:
        CanaryNotNoticed: it fell into none.
        TestbedError: it was not run to its end, because the testbed failed or a worker died.
    """
    job = Job(_SEED, CANARY.options(None, quiet_phase_s=1.0), overlay=CANARY.files())
    results = list(executor.run(iter([_SEED]), lambda seed: job))
    if not results or any(result.status == "error" for result in results):
        raise TestbedError(
            f"the canary, a run of a wrong connector that comes before all seeds, did not end: "
            f"{_said(results)}. No seed was run"
        )
    groups = [failure.group for result in results for failure in result.failures]
    if "wrong-bytes/consumer" not in groups:
        raise CanaryNotNoticed(
            f"a connector that is known to be wrong ({CANARY.breaks[:-1].lower()}) was run on "
            f"seed {_SEED}, and the rule wrong-bytes did not notice: {_said(results)}. No seed was "
            "run, because their results would mean nothing"
        )
    return {"seed": _SEED, "groups": groups}


def _said(results: list[SeedResult]) -> str:
    return "; ".join(f"{r.status} {r.detail}".strip() for r in results) or "no result came"
