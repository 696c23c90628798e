"""The knobs of an engine that change what a connector goes through."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sim.engine.roofline import Accelerator, PassTimes, RooflineTimes, named_accelerator
from sim.engine.timing import StepTimes
from sim.engine.work import work_of
from sim.errors import UsageError
from sim.model.presets import ModelPreset
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
    accelerator: str | Accelerator | None = None
    """Compute how long a forward pass takes on this one: a name, its numbers, or in a file the path
    of another file, ending in .toml. All else takes ``step_times``."""

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


def rank_names(instance: str, size: int) -> list[str]:
    """What the engines of an instance are called: by their ranks as well if there are several."""
    return [instance] if size == 1 else [f"{instance}-dp{rank}" for rank in range(size)]


def pass_times_of(options: EngineOptions, preset: ModelPreset) -> PassTimes:
    """How long the steps of an engine with ``options`` take.

    Raises:
        UsageError: there is no accelerator of that name, or the model's weights are not known.
    """
    named = options.accelerator
    if named is None:
        return options.step_times
    accelerator = named_accelerator(named) if isinstance(named, str) else named
    weights = accelerator.weights or preset.weights
    if weights is None:
        raise UsageError(
            f"the weights of {preset.name} are not known, so times on {accelerator.name} cannot be "
            "computed; copy its file and add [weights] with parameters (docs/step-times.md)"
        )
    work = work_of(preset.name, options.tp_size)
    return RooflineTimes(options.step_times, accelerator, weights, work, options.tp_size)
