"""The library's worker without a process, for tests that have loaded vLLM already."""

from __future__ import annotations

from pathlib import Path

import msgspec

from faults import Run, Scenario, scenario_server
from faults.scenario_worker import Refusal


class InProcessWorker:
    """Runs one scenario after another, here; jobs and answers go through JSON as always."""

    def run(self, scenario: Scenario, out: Path | None) -> Run | Refusal:
        """As ScenarioWorker."""
        job = {"scenario": scenario, "directory": str(Path.cwd()), "out": out and str(out)}
        answer = scenario_server.answer(msgspec.json.decode(msgspec.json.encode(job)))
        return msgspec.json.decode(msgspec.json.encode(answer), type=Run | Refusal)
