"""The knobs of an engine that change what a connector goes through."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sim.engine.timing import StepTimes
from sim.model.speculation import Speculation

Count = Annotated[int, msgspec.Meta(ge=1)]
Executor = Literal["single-process", "multi-process"]
ModelRunnerKind = Literal["v2", "v1"]


class EngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of every engine of a scenario, with vLLM's names where it has one."""

    tp_size: Count = 1
    data_parallel_size: Count = 1
    """Engine cores of an instance; each has ``tp_size`` ranks, a scheduler and a cache."""
    executor: Executor = "single-process"
    model_runner: ModelRunnerKind = "v2"
    """Which of vLLM's model runners the order of a step is taken from."""
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    kv_load_failure_policy: Literal["fail", "recompute"] = "fail"
    max_num_seqs: Count = 64
    max_num_batched_tokens: Count = 8192
    num_blocks: Count | None = None
    """KV cache blocks per rank; chosen from the workload when not given."""
    speculation: Speculation | None = None
    """Speculative decoding, with a drafter that the model offers."""
    step_times: StepTimes = StepTimes()

    @property
    def num_speculative_tokens(self) -> int:
        """Drafts a step; 0 without speculation."""
        return self.speculation.num_speculative_tokens if self.speculation else 0

    def __post_init__(self) -> None:
        """Refuse what vLLM's executors cannot do."""
        if self.tp_size > 1 and self.executor == "single-process":
            raise ValueError(
                f"tp_size {self.tp_size} needs executor: multi-process, because vLLM's "
                "single-process executor has one rank"
            )
