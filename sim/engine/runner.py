"""The simulated worker's model runner: vLLM's order of work over the synthetic model.

Order, as in vllm/v1/worker/gpu/model_runner.py: requests end, begin and get their new blocks;
new blocks are zeroed (queued on the stream); the connector's hooks run around the forward pass;
sampling, then the connector's results; the output is awaited only when somebody asks for it.
When the connector is called is decided by vLLM's own hook modules (sim/engine/hooks.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.distributed.kv_transfer import has_kv_transfer_group
from vllm.distributed.utils import cpu_all_reduce_
from vllm.forward_context import set_forward_context
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import (
    AsyncModelRunnerOutput,
    DraftTokenIds,
    KVConnectorOutput,
    ModelRunnerOutput,
)

from sim.device import DeviceEvent, Gate, Stream
from sim.engine.batch import Batch, Chunk, RequestState
from sim.engine.data_parallel import HostGroup
from sim.engine.drafter import SKIPPED
from sim.engine.forward import SyntheticModel
from sim.engine.forward_context import ForwardContexts
from sim.engine.forward_pass import DrafterPass, ForwardPass
from sim.engine.hooks import ConnectorHooks
from sim.engine.request_states import RequestStates
from sim.engine.roofline import PassTimes
from sim.kernel import Kernel
from sim.model.token_stream import TokenStream

GateOfPass = Callable[[int], Gate | None]
DelayOfWrite = Callable[[str, Batch], int]
OnConnectorOutput = Callable[[KVConnectorOutput | None], None]

_DUMMIES_AHEAD = 2  # as V1's synchronize_input_prep() allows; see sim/DIVERGENCE.md


@dataclass(frozen=True)
class _Pending:
    """A step between its two halves."""

    batch: Batch
    finished_req_ids: set[str]
    num_drafts: int
    across_ranks: _AcrossRanks | None


@dataclass(frozen=True)
class _AcrossRanks:
    """What data-parallel ranks agree about a step, once for model and drafter."""

    num_tokens: torch.Tensor
    """Of each rank, (ranks,) int32."""
    skip_drafts: bool
    """No rank can use drafts of this step."""


class SampledLater(AsyncModelRunnerOutput):
    """The output of a step whose tokens are still being computed on the device."""

    def __init__(self, output: ModelRunnerOutput, batch: Batch, done: DeviceEvent) -> None:
        self._output = output
        self._batch = batch
        self._done = done

    def get_output(self) -> ModelRunnerOutput:
        self._done.synchronize()
        sampled = self._batch.sampled
        self._output.sampled_token_ids = [
            list(sampled.get(chunk.state.request_id, ())) for chunk in self._batch.chunks
        ]
        return self._output

    def get_kv_connector_output(self) -> KVConnectorOutput | None:
        return self._output.kv_connector_output


class ModelRunner:
    """One rank's share of every engine step."""

    def __init__(
        self,
        kernel: Kernel,
        vllm_config: Any,
        model: SyntheticModel,
        stream: Stream,
        hooks: ConnectorHooks,
        contexts: ForwardContexts,
        times: PassTimes,
        gate_of_pass: GateOfPass,
        peers: HostGroup | None,
        delay_ns: DelayOfWrite,
        on_connector_output: OnConnectorOutput,
        on_new_stream: Callable[[str, TokenStream], None],
        on_prompt: Callable[[str, int, int], None],
    ) -> None:
        self.kernel = kernel
        self.vllm_config = vllm_config
        self.model = model
        self.stream = stream
        self.hooks = hooks
        self.contexts = contexts
        self.times = times
        self._gate_of_pass = gate_of_pass
        self._peers = peers
        self._delay_ns = delay_ns
        self._on_connector_output = on_connector_output
        self._requests = RequestStates(vllm_config, on_new_stream, on_prompt)
        self._pending: _Pending | None = None
        self._passes = 0
        self._dummies = deque([0] * _DUMMIES_AHEAD)
        """Where in the stream the latest dummy passes end, oldest first."""
        self.draft_token_ids: DraftTokenIds | None = None
        """What the scheduler may count with in the next step, where it does not run ahead. They are
        placeholders, because the drafts stay on the device."""

    # ------------------------------------------------------------- the step

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """First half of a step; None means that sample_tokens() has the output."""
        self.hooks.begin(scheduler_output)
        self._requests.follow(scheduler_output)
        self._zero_new_blocks(scheduler_output)
        self._copy_blocks(scheduler_output)
        if scheduler_output.total_num_scheduled_tokens == 0:
            no_forward = self.hooks.no_forward(scheduler_output)
            self._on_connector_output(no_forward.kv_connector_output)
            return no_forward
        self.kernel.sleep(self.times.host_ns)
        across_ranks = self._meet_peers(
            scheduler_output.total_num_scheduled_tokens, scheduler_output.skip_drafts
        )
        batch = self._make_batch(scheduler_output)
        self._carry_states(batch)
        with (
            self._forward_context(batch, across_ranks),
            self.hooks.around_forward(scheduler_output, batch),
        ):
            self._launch_forward(batch)
        self.hooks.end_forward()
        skip_drafts = across_ranks.skip_drafts if across_ranks else scheduler_output.skip_drafts
        drafts = 0 if skip_drafts else scheduler_output.num_spec_tokens_to_schedule
        finished = scheduler_output.finished_req_ids
        self._pending = _Pending(batch, finished, drafts, across_ranks)
        return None

    def sample_tokens(self) -> SampledLater | None:
        """Second half: the connector's results, and a hold on tokens yet to come."""
        if self._pending is None:  # the first half failed
            return None
        pending, self._pending = self._pending, None
        batch, speculates = pending.batch, self.model.drafter is not None
        output = ModelRunnerOutput(
            req_ids=batch.req_ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(batch.req_ids)},
            sampled_token_ids=[],
        )
        done = DeviceEvent()
        done.record(self.stream)
        output.kv_connector_output = self.hooks.results(pending.finished_req_ids)
        reported = output.kv_connector_output
        if reported is not None and reported.invalid_block_ids:
            batch.loads_failed(reported.invalid_block_ids)
        self.model.results_known(batch)
        self._on_connector_output(output.kv_connector_output)
        if speculates:
            self._keep_states(batch)
            self._run_drafter(batch, pending)
            self.hooks.finalize()
        return SampledLater(output, batch, done)

    def _zero_new_blocks(self, scheduler_output: SchedulerOutput) -> None:
        block_ids = scheduler_output.new_block_ids_to_zero
        if block_ids:
            self.stream.enqueue(
                "zero",
                self.times.zero_ns(len(block_ids)),
                at_end=lambda: self.model.zero(block_ids),
            )

    def _copy_blocks(self, scheduler_output: SchedulerOutput) -> None:
        """Blocks that are shared up to some token, and written behind it."""
        copies = scheduler_output.kv_cache_block_copies
        if copies:
            self.stream.enqueue(
                "block copies",
                self.times.zero_ns(len(copies)),
                at_end=lambda: self.model.copy_blocks(copies),
            )

    # --------------------------------------------------------------- forward

    def _make_batch(self, scheduler_output: SchedulerOutput) -> Batch:
        drafts = scheduler_output.scheduled_spec_decode_tokens
        chunks = [
            self._make_chunk(self._requests[request_id], count, len(drafts.get(request_id, ())))
            for request_id, count in scheduler_output.num_scheduled_tokens.items()
        ]
        return Batch(
            req_ids=list(scheduler_output.num_scheduled_tokens),
            chunks=chunks,
            idx_mapping=np.arange(len(chunks), dtype=np.int32),
            num_tokens=scheduler_output.total_num_scheduled_tokens,
        )

    def _make_chunk(self, state: RequestState, num_tokens: int, num_drafts: int) -> Chunk:
        taken_back_to, state.taken_back_to = state.taken_back_to, None
        state.surely_computed += num_tokens - num_drafts
        if state.surely_computed >= len(state.tokens):
            state.promised = state.surely_computed + 1
        return Chunk(state, num_tokens, num_drafts, state.tokens, taken_back_to, state.not_loaded)

    def _carry_states(self, batch: Batch) -> None:
        """Queue the copies that move recurrent states to the blocks of this step."""
        if self.model.state_groups:
            self.stream.enqueue(
                "state copies",
                self.times.zero_ns(len(batch.chunks)),
                at_start=batch.begin,
                at_end=lambda: self.model.carry_over(batch),
            )

    def _keep_states(self, batch: Batch) -> None:
        """Queue the copies that drafts, accepted beyond the end of a block, make necessary."""
        if self.model.state_groups:
            self.stream.enqueue(
                "state copies",
                self.times.zero_ns(len(batch.chunks)) + self._delay_ns("state copies", batch),
                at_end=lambda: self.model.keep_states(batch),
            )

    def _launch_forward(self, batch: Batch) -> None:
        duration_ns = self.times.forward_ns([chunk.expected_span for chunk in batch.chunks])
        layers, gate = self.contexts.layers, self._gate(batch)
        forward_pass = ForwardPass(self.stream, self.model, batch, layers, duration_ns, gate)
        forward_pass.run_hooked(self.contexts.hooked if has_kv_transfer_group() else ())

    def launch_dummy_forward(self) -> None:
        """A pass that reads and writes nothing, for the sake of the other data-parallel ranks.

        Nobody asks for its output, so the host itself keeps the device from falling behind.
        """
        self.kernel.sleep(self.times.host_ns)
        self._meet_peers(1, skip_drafts=False)
        self.stream.wait_until(self._dummies.popleft())
        self.stream.enqueue(
            "dummy forward", self.times.forward_ns([(0, 1)]), gate=self._gate_of_next_pass()
        )
        if self.model.drafter is not None:
            self.stream.enqueue(
                "dummy drafter", self.times.draft_ns(1), gate=self._gate_of_next_pass()
            )
        self._dummies.append(self.stream.position)

    def _meet_peers(self, num_tokens: int, skip_drafts: bool) -> _AcrossRanks | None:
        """What all data-parallel ranks say of the pass, if they run it together."""
        if self._peers is None:
            return None
        told = torch.zeros(2, self._peers.size(), dtype=torch.int32)
        told[0, self._peers.rank()] = num_tokens
        told[1, self._peers.rank()] = skip_drafts
        cpu_all_reduce_(told, self._peers)
        return _AcrossRanks(told[0], bool(told[1].all()))

    def _run_drafter(self, batch: Batch, pending: _Pending) -> None:
        """Like vLLM's, it runs the model's batch, so the ranks need not meet again."""
        assert self.model.drafter is not None
        num_drafts = pending.num_drafts
        drafting, passes = batch.drafting(), self.model.drafter.passes(num_drafts)
        gate = self._gate(drafting)

        def launch() -> None:
            self.stream.enqueue(
                "drafter",
                self.times.draft_ns(passes) + self._delay_ns("drafter", batch),
                at_start=lambda: self.model.read_for_drafts(drafting),
                at_end=lambda: self.model.propose(drafting, num_drafts),
                gate=gate,
            )

        with self._forward_context(batch, pending.across_ranks):
            hooked = self.contexts.hooked_of_drafter if has_kv_transfer_group() else ()
            DrafterPass(launch, passes).run_hooked(hooked)
        self.draft_token_ids = DraftTokenIds(
            batch.req_ids, [[SKIPPED] * num_drafts for _ in batch.req_ids]
        )

    def _forward_context(
        self, batch: Batch, across_ranks: _AcrossRanks | None
    ) -> AbstractContextManager[None]:
        metadata, slots = self.contexts.of(batch)
        return set_forward_context(  # type: ignore[no-any-return]
            metadata,
            self.vllm_config,
            num_tokens=batch.num_tokens,
            num_tokens_across_dp=across_ranks and across_ranks.num_tokens,
            slot_mapping=slots,
        )

    def _gate(self, batch: Batch) -> Gate | None:
        """Where the ranks meet for the next pass, and tell each other what they found wrong."""
        gate = self._gate_of_next_pass()
        if gate is not None:
            batch.deviations = gate.shared
        return gate

    def _gate_of_next_pass(self) -> Gate | None:
        self._passes += 1
        return self._gate_of_pass(self._passes)
