"""vLLM's configuration of speculative decoding for a preset's drafter."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from torch import nn
from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig
from vllm.model_executor.models import ModelRegistry

from sim.model.presets import Geometry, ModelPreset
from sim.model.speculation import Speculation


def speculative_config(
    preset: ModelPreset,
    geometry: Geometry,
    speculation: Speculation,
    model_config: ModelConfig,
    parallel_config: ParallelConfig,
    stand_in: type[nn.Module],
) -> SpeculativeConfig:
    """What vLLM makes of the drafter's config.json.

    Args:
        preset: the model.
        geometry: which of its dimensions.
        speculation: method and number of drafts.
        model_config: of the model.
        parallel_config: of the model.
        stand_in: takes the place of the drafter's class, which vLLM would inspect in a process of
            its own.

    Raises:
        UsageError: the preset has no drafter for the method.
    """
    drafter = preset.drafter(speculation.method)
    ModelRegistry.register_model(drafter.architecture, stand_in)
    contents = {
        **preset.sizes(geometry).hf_config,
        "architectures": [drafter.architecture],
        "max_position_embeddings": preset.max_positions,
        "torch_dtype": preset.dtype,
        **drafter.hf_config,
    }
    if drafter.multimodal_type is not None:
        common = {key: contents[key] for key in ("architectures", "torch_dtype")}
        contents = {"model_type": drafter.multimodal_type, **common, "text_config": contents}
    with tempfile.TemporaryDirectory(prefix="faultlab-drafter-") as directory:
        (Path(directory) / "config.json").write_text(json.dumps(contents))
        config = SpeculativeConfig(
            method=speculation.method,
            model=directory,
            num_speculative_tokens=speculation.num_speculative_tokens,
            target_model_config=model_config,
            target_parallel_config=parallel_config,
        )
    # The directory's name is random.
    name = f"{model_config.model}-{speculation.method}"
    config.model = config.draft_model_config.model = name
    config.draft_model_config.hf_config._name_or_path = name
    return config
