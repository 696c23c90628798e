"""Which modules belong to an engine: its processes have copies, and an overlay's come first.

Importing this loads no vLLM.
"""

from __future__ import annotations

from sim.engine.connectors import ConnectorKind, in_tree_roots

V2_HOOKS = "vllm.v1.worker.gpu.kv_connector"
V1_HOOKS = "vllm.v1.worker.kv_connector_model_runner_mixin"
_OF_ALL = (V2_HOOKS, V1_HOOKS, "vllm.utils.network_utils")


def guest_roots(connector: ConnectorKind | None) -> tuple[str, ...]:
    """Those of an engine with this connector, or without one; a package stands for all below."""
    return _OF_ALL if connector is None else (*_OF_ALL, *connector.roots, *in_tree_roots())
