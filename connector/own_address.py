"""Where this engine is: the address that peers are told, and on how many machines its ranks are."""

from __future__ import annotations

from vllm.config import ParallelConfig
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import resolve_host_ip
from vllm.distributed.parallel_state import get_tp_group, in_the_same_node_as

from connector.core.addresses import IPV4, is_ipv4
from connector.core.config import Settings
from connector.core.errors import ConfigError


def own_address(settings: Settings) -> str:
    """The IPv4 address that peers are told: ``host_ip``, or else vLLM's guess.

    Raises:
        ConfigError: the guess is none.
    """
    host: str = resolve_host_ip({"host_ip": settings.host_ip})
    if not is_ipv4(host):
        raise ConfigError(
            f"host_ip is not set, and vLLM takes {host!r} for the address of this machine; set "
            f"host_ip to {IPV4}"
        )
    return host


def check_one_machine(parallel: ParallelConfig) -> None:
    """Refuse tensor-parallel ranks that an executor has placed on several machines.

    Peers look for all ranks at the address of rank 0. vLLM's own processes are where ``nnodes``
    says; other executors tell nobody, so there the ranks ask each other, which all have to do.

    Raises:
        ConfigError: on every rank alike.
    """
    backend = "ray" if parallel.use_ray else parallel.distributed_executor_backend
    group = get_tp_group()
    if group.world_size == 1 or backend not in ("ray", "external_launcher"):
        return
    here = in_the_same_node_as(group.cpu_group)
    elsewhere = [rank for rank, is_here in enumerate(here) if not is_here]
    if elsewhere:
        raise ConfigError(
            f"distributed_executor_backend is {backend!r}, and the tensor-parallel ranks "
            f"{elsewhere} share no memory with rank 0; peers look for all ranks at the address of "
            "rank 0, so place them on one machine"
        )
