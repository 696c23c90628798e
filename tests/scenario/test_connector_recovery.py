"""What follows a read that fails or does not end: blocks, queue pairs, other requests, the peer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from faults.mutants.catalog import MUTANTS
from faults.running import run
from faults.schedule import parse
from sim.engine.options import EngineOptions
from sim.outcome import Outcome
from sim.probes import Probe
from sim.scenario import Scenario, UniformWorkload, with_settings
from sim.units import SECOND

LATE = "late-landing:by_s=10,request=req-0"
TIGHT = {"transfer_timeout": 1, "defer_timeout": 3, "fence_timeout": 20}


class Ends(Probe):
    """When each load was reported, and whether it failed."""

    def __init__(self) -> None:
        self.reports: dict[str, tuple[bool, int]] = {}
        self.now_ns = lambda: 0

    def engine_started(self, engine: Any) -> None:
        self.now_ns = lambda: engine.kernel.now_ns

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        self.reports[request_id] = (failed, self.now_ns())


def serve(
    fault: str, overlay: Path | None = None, probe: Probe | None = None, **changes: Any
) -> Outcome:
    """Requests of which the caches hold two, so that what one gives back is taken by the next."""
    scenario = Scenario(
        connector="hybrid",
        model="llama",
        workload=UniformWorkload(
            requests=12, prompt_tokens=(600, 600), output_tokens=(8, 8), interval_ms=400
        ),
        engine=EngineOptions(num_blocks=85),
        quiet_phase_s=30,
        extra_config=TIGHT,
        faults=(msgspec.to_builtins(parse(fault)),),
    )
    scenario = msgspec.structs.replace(scenario, **changes)
    if overlay is not None:
        scenario = with_settings(scenario, {"overlay": msgspec.json.encode(str(overlay)).decode()})
    return run(scenario, probe=probe).result.outcome


def test_blocks_are_reused_at_once_when_the_queue_pairs_are_destroyed() -> None:
    """The read of the first request would land nine seconds after it was given up. Its blocks go
    to others long before, and no byte reaches them."""
    ends = Ends()
    outcome = serve(LATE, probe=ends)
    assert outcome.violations == []
    assert outcome.requests["length"] >= 8
    failed = [at_ns for failed, at_ns in ends.reports.values() if failed]
    assert failed
    assert max(failed) < 6 * SECOND


def test_the_bytes_would_land_if_the_queue_pairs_were_not_destroyed(tmp_path: Path) -> None:
    """The same run with a fence that only pretends: the late bytes hit somebody else's blocks."""
    MUTANTS["queue-pair-not-destroyed"].write(tmp_path)
    outcome = serve(LATE, tmp_path)
    assert any(v.oracle == "use-after-free" for v in outcome.violations), outcome.violations
