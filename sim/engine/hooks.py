"""When a worker calls its connector in a step: as vLLM's V2 model runner does, or as V1 does.

Both order the calls by vLLM's own code, a guest. V2 (``vllm/v1/worker/gpu``) has a module for it;
its results come after sampling. V1 (``vllm/v1/worker/gpu_model_runner.py``) tells the connector of
preemptions before anything else in the step, and uses a context manager around the forward pass,
which collects the results before sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.utils import copy_kv_blocks
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, KVConnectorOutput, ModelRunnerOutput

from sim.engine.batch import Batch
from sim.engine.guest_roots import V1_HOOKS, V2_HOOKS
from sim.engine.options import ModelRunnerKind
from sim.guest.process import GuestProcess


class ConnectorHooks(Protocol):
    """The moments of a step at which a connector is called."""

    def begin(self, scheduler_output: SchedulerOutput) -> None:
        """Before requests and blocks are brought up to date."""

    def no_forward(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """A step without tokens."""

    def around_forward(self, scheduler_output: SchedulerOutput, batch: Batch) -> Any:
        """A context for the launch of the forward pass."""

    def end_forward(self) -> None:
        """After the launch."""

    def results(self, finished_req_ids: set[str]) -> KVConnectorOutput | None:
        """What the connector reports, at the end of the step."""

    def finalize(self) -> None:
        """After the drafter, where there is one: what else would have been done before."""


def make_hooks(
    kind: ModelRunnerKind, guest: GuestProcess, vllm_config: VllmConfig, caches: Mapping[str, Any]
) -> ConnectorHooks:
    """Registers ``caches`` with the process's connector, if it has one."""
    return (
        _V2Hooks(guest, vllm_config, caches)
        if kind == "v2"
        else _V1Hooks(guest, vllm_config, caches)
    )


class _V2Hooks:
    def __init__(
        self, guest: GuestProcess, vllm_config: VllmConfig, caches: Mapping[str, Any]
    ) -> None:
        self._kv_connector = guest.load(V2_HOOKS).get_kv_connector(vllm_config, caches)
        self._speculates = vllm_config.speculative_config is not None

    def begin(self, scheduler_output: SchedulerOutput) -> None:
        """Preemptions are told together with the rest."""

    def no_forward(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        output: ModelRunnerOutput = self._kv_connector.no_forward(scheduler_output)
        return output

    @contextmanager
    def around_forward(self, scheduler_output: SchedulerOutput, batch: Batch) -> Iterator[None]:
        self._kv_connector.pre_forward(scheduler_output, batch)
        yield

    def end_forward(self) -> None:
        self._kv_connector.finish_forward()

    def results(self, finished_req_ids: set[str]) -> KVConnectorOutput | None:
        output: KVConnectorOutput | None = self._kv_connector.post_forward(
            finished_req_ids, defer_finalize=self._speculates
        )
        return output

    def finalize(self) -> None:
        self._kv_connector.finalize_step()


class _V1Hooks:
    def __init__(
        self, guest: GuestProcess, vllm_config: VllmConfig, caches: Mapping[str, Any]
    ) -> None:
        self._mixin = guest.load(V1_HOOKS).KVConnectorModelRunnerMixin
        self._vllm_config = vllm_config
        self._output: KVConnectorOutput | None = None
        if has_kv_transfer_group():
            get_kv_transfer_group().register_kv_caches(dict(caches))
            get_kv_transfer_group().set_host_xfer_buffer_ops(copy_kv_blocks)

    def begin(self, scheduler_output: SchedulerOutput) -> None:
        if has_kv_transfer_group():
            metadata = scheduler_output.kv_connector_metadata
            assert metadata is not None
            get_kv_transfer_group().handle_preemptions(metadata)

    def no_forward(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        if not has_kv_transfer_group():
            return EMPTY_MODEL_RUNNER_OUTPUT
        output: ModelRunnerOutput = self._mixin.kv_connector_no_forward(
            scheduler_output, self._vllm_config
        )
        return output

    @contextmanager
    def around_forward(self, scheduler_output: SchedulerOutput, batch: Batch) -> Iterator[None]:
        defer = self._vllm_config.speculative_config is not None
        with self._mixin.maybe_get_kv_connector_output(scheduler_output, defer) as output:
            yield
        self._output = output

    def end_forward(self) -> None:
        """V1 does not call finish_forward."""

    def results(self, finished_req_ids: set[str]) -> KVConnectorOutput | None:
        output, self._output = self._output, None
        return output

    def finalize(self) -> None:
        self._mixin.finalize_kv_connector()
