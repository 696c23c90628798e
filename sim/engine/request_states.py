"""What a model runner keeps of its requests, brought up to date with each scheduler output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput

from sim.engine.batch import BlockTable, RequestState
from sim.model.token_stream import TokenStream
from sim.request_ids import leg_of


class RequestStates:
    """By vLLM's names of requests.

    Args:
        on_new_stream: told of a leg and the tokens that are known of it, and again when its
            tokens are others than those told of before.
        on_prompt: told of a leg, its number of prompt tokens and their hash.
    """

    def __init__(
        self,
        vllm_config: Any,
        on_new_stream: Callable[[str, TokenStream], None],
        on_prompt: Callable[[str, int, int], None],
    ) -> None:
        self._num_drafts = vllm_config.num_speculative_tokens
        self._on_new_stream = on_new_stream
        self._on_prompt = on_prompt
        self._states: dict[str, RequestState] = {}
        self._prompt_tokens: dict[str, int] = {}
        """Numbers of them, of preempted requests too."""

    def __getitem__(self, request_id: str) -> RequestState:
        return self._states[request_id]

    def follow(self, scheduler_output: SchedulerOutput) -> None:
        """Requests end, begin, and get their new blocks."""
        self._remove(scheduler_output)
        self._add_all(scheduler_output)
        self._update(scheduler_output)
        for new in scheduler_output.scheduled_new_reqs:
            self._share_failed_loads(self._states[new.req_id])

    def _remove(self, scheduler_output: SchedulerOutput) -> None:
        ended = scheduler_output.finished_req_ids | (scheduler_output.preempted_req_ids or set())
        for request_id in sorted(ended):
            self._states.pop(request_id, None)
        for request_id in sorted(scheduler_output.finished_req_ids):
            self._prompt_tokens.pop(request_id, None)

    def _share_failed_loads(self, new: RequestState) -> None:
        """Blocks whose load failed for a request that still has them may have been given to another
        as hits, before the scheduler knew; it drops what comes of them there as well."""
        failed = frozenset[int]().union(*(state.not_loaded for state in self._states.values()))
        for table in new.tables if failed else ():
            new.not_loaded |= failed.intersection(table.ids.tolist())

    def _add_all(self, scheduler_output: SchedulerOutput) -> None:
        for new in scheduler_output.scheduled_new_reqs:
            tokens = new.prefill_token_ids or new.prompt_token_ids
            assert tokens is not None, f"{new.req_id} has no tokens"
            self._prompt_tokens[new.req_id] = len(new.prompt_token_ids or tokens)
            self._add(new.req_id, tokens, new.block_ids, new.num_computed_tokens)
        # With the V1 runner, requests come back from preemption as ones that are known already.
        cached = scheduler_output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            if request_id in cached.resumed_req_ids:
                block_ids = cached.new_block_ids[index]
                assert block_ids is not None, f"{request_id} resumes without blocks"
                tokens = cached.all_token_ids[request_id]
                num_computed = cached.num_computed_tokens[index]
                self._add(request_id, tokens, block_ids, num_computed)

    def _add(
        self,
        request_id: str,
        tokens: Sequence[int],
        block_ids: Sequence[Sequence[int]],
        num_computed: int,
    ) -> None:
        stream, leg = TokenStream(tokens), leg_of(request_id)
        self._on_new_stream(leg, stream)
        prompt_tokens = self._prompt_tokens[request_id]
        self._on_prompt(leg, prompt_tokens, stream.prefix_hash(prompt_tokens))
        self._states[request_id] = RequestState(
            request_id=leg,
            prompt_tokens=prompt_tokens,
            tokens=stream,
            tables=[BlockTable(ids) for ids in block_ids],
            computed=num_computed,
            surely_computed=num_computed,
            drafts=[0] * self._num_drafts,
        )

    def _update(self, scheduler_output: SchedulerOutput) -> None:
        cached = scheduler_output.scheduled_cached_reqs
        for request_id, num_computed, num_output, new_block_ids in zip(
            cached.req_ids,
            cached.num_computed_tokens,
            cached.num_output_tokens,
            cached.new_block_ids,
            strict=True,
        ):
            if request_id in cached.resumed_req_ids:
                continue
            state = self._states[request_id]
            if num_computed < state.surely_computed:
                state.roll_back(num_computed, num_output)
                self._on_new_stream(state.request_id, state.tokens)
            for table, block_ids in zip(state.tables, new_block_ids or (), strict=False):
                table.extend(block_ids)
