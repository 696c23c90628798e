"""Where an engine stands among data-parallel ranks.

vLLM tells each rank of a model without experts that it is rank 0 of 1, because these ranks compute
alone (`ParallelConfig.reconfigure_for_independent_dp_rank`). They share a machine's ports and a
front end all the same. What is left to tell them apart is their index, and their engine's name.
"""

from __future__ import annotations

import re

from vllm.config import ParallelConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import fold_local_rank

_OF_A_RANK = re.compile(r"_dp\d+$")  # as vLLM's `run_engine_core` names the engines of all ranks


def address_of(parallel: ParallelConfig) -> dict[str, int]:
    """Our rank, in upstream's parameters. A local size of 0 says that nobody knows it."""
    address = {
        "remote_dp_rank": parallel.data_parallel_rank,
        "remote_dp_size": parallel.data_parallel_size,
        "remote_dp_size_local": parallel.data_parallel_size_local,
    }
    if _computes_alone(parallel):
        address |= {"remote_dp_rank": parallel.data_parallel_index, "remote_dp_size_local": 0}
    return address


def rank_for_ports(parallel: ParallelConfig) -> int:
    """That by which ports are shifted, here and by whoever dials what `address_of` says."""
    address = address_of(parallel)
    return int(fold_local_rank(address["remote_dp_rank"], address["remote_dp_size_local"]))


def shares_a_front_end(config: VllmConfig) -> bool:
    """Whether vLLM may send requests of one client to ranks that do not hear of each other."""
    parallel, transfer = config.parallel_config, config.kv_transfer_config
    name = "" if transfer is None else str(transfer.engine_id)
    is_a_rank = parallel.data_parallel_size > 1 or _OF_A_RANK.search(name) is not None
    return is_a_rank and not parallel.data_parallel_external_lb


def _computes_alone(parallel: ParallelConfig) -> bool:
    return bool(parallel.data_parallel_size == 1 and parallel.data_parallel_index > 0)
