"""The vLLM configuration of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.config import VllmConfig

from sim.engine.data_parallel import configure_rank
from sim.guest.process import GuestProcess
from sim.model.config import build_vllm_config

if TYPE_CHECKING:
    from sim.engine.engine import Engine


def config_of(engine: Engine, guest: GuestProcess) -> VllmConfig:
    """As vLLM makes it of the engine's options; ``guest`` has the modules that it names."""
    connector = engine.connector
    if connector is not None:
        connector.load(guest)
    options = engine.options
    config = build_vllm_config(
        engine.preset,
        num_blocks=engine.num_blocks,
        geometry=engine.geometry,
        tp_size=options.tp_size,
        data_parallel_size=options.data_parallel_size,
        max_model_len=engine.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        enable_prefix_caching=options.enable_prefix_caching,
        enable_chunked_prefill=options.enable_chunked_prefill,
        async_scheduling=options.async_scheduling,
        model_runner=options.model_runner,
        connector=None if connector is None else connector.transfer_config(guest),
        kv_role=None if connector is None else connector.role,
        kv_load_failure_policy=options.kv_load_failure_policy,
        engine_id=f"{engine.group.name}-{engine.incarnation}",
        speculation=options.speculation,
    )
    if engine.group.size > 1:
        configure_rank(config, engine.data_parallel_rank)
    return config
