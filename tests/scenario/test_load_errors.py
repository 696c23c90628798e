"""What vLLM's scheduler is told of a failed asynchronous load, and what it makes of it (R16)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from faults.running import run
from faults.schedule import parse
from sim.engine.options import EngineOptions
from sim.outcome import Outcome
from sim.scenario import Scenario, UniformWorkload


@dataclass
class Reports:
    """What consumers' schedulers were told, by request of which blocks it was."""

    failed: list[str] = field(default_factory=list)
    blocks: dict[str, set[int]] = field(default_factory=dict)
    strangers: set[int] = field(default_factory=set)
    """Blocks that no request holds which waits for a load."""

    def add(self, scheduler: Any, output: Any) -> None:
        self.failed += sorted(output.failed_recving or ())
        left = set(output.invalid_block_ids or ())
        for request in scheduler.requests.values():
            held = {
                block
                for group in scheduler.kv_cache_manager.get_block_ids(request.request_id)
                for block in group
            }
            if left & held and request.status.name in ("WAITING_FOR_REMOTE_KVS", "FINISHED_ERROR"):
                self.blocks.setdefault(request.request_id, set()).update(left & held)
                left -= held
        self.strangers |= left


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    found = Reports()
    update = Scheduler.update_from_output

    def watched(self: Any, scheduler_output: Any, output: Any) -> Any:
        if output.kv_connector_output is not None:
            found.add(self, output.kv_connector_output)
        return update(self, scheduler_output, output)

    monkeypatch.setattr(Scheduler, "update_from_output", watched)
    return found


def serve(model: str, tp_size: int, policy: str) -> Outcome:
    scenario = Scenario(
        connector="hybrid",
        model=model,
        workload=UniformWorkload(
            requests=4, prompt_tokens=(600, 600), output_tokens=(6, 6), interval_ms=300
        ),
        engine=EngineOptions(
            tp_size=tp_size, executor="multi-process", kv_load_failure_policy=policy
        ),
        quiet_phase_s=20,
        extra_config={"transfer_timeout": 2, "defer_timeout": 3},
        faults=(msgspec.to_builtins(parse("completion-error:request=req-2,count=1000")),),
    )
    return run(scenario).result.outcome


@pytest.mark.parametrize("policy", ["fail", "recompute"])
@pytest.mark.parametrize("tp_size", [1, 2])
def test_blocks_of_a_failed_load_are_named_where_block_ids_are_unique(
    reports: Reports, tp_size: int, policy: str
) -> None:
    """One cache group: the request is named and so is every block that was to be loaded, while the
    request still has them. Only it fails, or it is computed again, with the right tokens."""
    outcome = serve("llama", tp_size, policy)
    assert outcome.violations == []
    (name,) = set(reports.failed)
    assert "req-2" in name
    assert list(reports.blocks) == [name]
    assert len(reports.blocks[name]) == -(-599 // 16)
    assert reports.strangers == set()
    failed = int(policy == "fail")
    assert (outcome.requests.get("error", 0), outcome.requests["length"]) == (failed, 4 - failed)


@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_no_blocks_are_named_where_they_are_not_unique(reports: Reports, policy: str) -> None:
    """With several groups vLLM's engine would end; the request is named alone."""
    outcome = serve("kimi-linear", 1, policy)
    assert outcome.violations == []
    assert len(reports.failed) == 1
    assert (reports.blocks, reports.strangers) == ({}, set())
    failed = int(policy == "fail")
    assert (outcome.requests.get("error", 0), outcome.requests["length"]) == (failed, 4 - failed)
