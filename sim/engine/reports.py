"""What an engine tells the probes and the event log, in the router's names of requests."""

from __future__ import annotations

from typing import Any

from vllm.v1.engine import EngineCoreOutput

from sim.engine.block_runs import runs
from sim.engine.ledger import BlockLedger, watch_zeroing
from sim.kernel import Kernel
from sim.probes import Probes, StepTimes
from sim.request_ids import leg_of


class EngineReports:
    """On behalf of the engine ``name``, over all its incarnations."""

    def __init__(self, kernel: Kernel, probes: Probes, name: str) -> None:
        self._kernel = kernel
        self._probes = probes
        self._name = name

    def watch_blocks(self, scheduler: Any) -> None:
        """Tell what the engine's scheduler does with blocks."""
        BlockLedger(
            scheduler.kv_cache_manager, self._blocks_held, self._blocks_freed, self._blocks_refused
        )
        watch_zeroing(scheduler, self._zeroing_wanted)

    def _blocks_held(self, request_id: str, group: int, block_ids: list[int]) -> None:
        request_id = leg_of(request_id)
        self._kernel.record(
            "blocks-held", node=self._name, request=request_id, group=group, blocks=runs(block_ids)
        )
        self._probes.blocks_held(self._name, request_id, group, block_ids)

    def _zeroing_wanted(self, block_ids: list[int]) -> None:
        self._probes.zeroing_wanted(self._name, block_ids)

    def _blocks_freed(self, request_id: str) -> None:
        request_id = leg_of(request_id)
        self._kernel.record("blocks-freed", node=self._name, request=request_id)
        self._probes.blocks_freed(self._name, request_id)

    def _blocks_refused(self, request_id: str) -> None:
        self._probes.blocks_refused(self._name, leg_of(request_id))

    def step_done(self, step: StepTimes) -> None:
        """An engine step returned."""
        self._probes.step_done(step)

    def steps_skipped(self, count: int, period_ns: int) -> None:
        """So many steps are passed over from now on, each ``period_ns`` after the one before."""
        last_ns = self._kernel.now_ns + (count - 1) * period_ns
        self._probes.steps_skipped(
            count, StepTimes(self._name, last_ns, last_ns, model_executed=False)
        )

    def connector_reported(self, rank: int, output: Any) -> None:
        """A worker's connector reported finished transfers for this step."""
        if output is None or output.is_empty():
            return
        self._kernel.env.activity += 1
        for request_id in sorted(map(leg_of, output.finished_sending or ())):
            self._kernel.record("sending-finished", node=self._name, rank=rank, request=request_id)
            self._probes.sending_finished(self._name, rank, request_id)
        failures = set(map(leg_of, output.failed_recving))
        for request_id in sorted(map(leg_of, output.finished_recving or ())):
            failed = request_id in failures
            self._kernel.record(
                "receiving-finished", node=self._name, rank=rank, request=request_id, failed=failed
            )
            self._probes.receiving_finished(self._name, rank, request_id, failed=failed)
        if output.invalid_block_ids:
            self._probes.blocks_not_loaded(self._name, rank, sorted(output.invalid_block_ids))

    def drafts_verified(self, output: EngineCoreOutput) -> None:
        """What came of a leg's drafts, if ``output`` says it."""
        metrics = output.spec_decode_metrics
        if metrics is not None:
            leg, accepted = leg_of(output.request_id), list(metrics.per_step_accepted)
            self._probes.drafts_verified(leg, accepted, metrics.num_draft_tokens)
