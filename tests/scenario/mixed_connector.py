"""Two connectors that take a producer of one kind and a consumer of the other."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector import MoRIIOConnector

from connector.hybrid import HybridReadConnector


def _is_producer(vllm_config: Any) -> bool:
    return bool(vllm_config.kv_transfer_config.kv_role == "kv_producer")


class HybridReadsFromUpstream(KVConnectorBase_V1, SupportsHMA):
    """An upstream producer and a hybrid consumer."""

    def __new__(cls, vllm_config: Any, role: Any, kv_cache_config: Any) -> Any:
        kind = MoRIIOConnector if _is_producer(vllm_config) else HybridReadConnector
        return kind(vllm_config, role, kv_cache_config)


class UpstreamReadsFromHybrid(KVConnectorBase_V1, SupportsHMA):
    """A hybrid producer and an upstream consumer."""

    def __new__(cls, vllm_config: Any, role: Any, kv_cache_config: Any) -> Any:
        kind = HybridReadConnector if _is_producer(vllm_config) else MoRIIOConnector
        return kind(vllm_config, role, kv_cache_config)
