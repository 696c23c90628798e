"""The engines of a scenario and where they run: machines, addresses, ports, data-parallel ranks.

An *instance* is what somebody deploys under one name: one engine, or as many as it has
data-parallel ranks. Ranks share the instance's machine and its configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sim.engine.connectors import ConnectorSetup, Role, get_connector
from sim.engine.data_parallel import DataParallelGroup
from sim.engine.engine import Engine
from sim.engine.options import EngineOptions
from sim.kernel import Node
from sim.model.presets import get_preset
from sim.pool import pool_of
from sim.scenario import Scenario
from sim.workload import RequestSpec
from sim.world import World

_HANDSHAKE_PORT, _NOTIFY_PORT, _HTTP_PORT = 6301, 61005, 8000
_PORTS_PER_INSTANCE = 100  # for the offsets that connectors add for their ranks


class Deployment:
    """Makes the engines of one run."""

    def __init__(self, scenario: Scenario, world: World, requests: Sequence[RequestSpec]) -> None:
        self._scenario = scenario
        self._world = world
        self._requests = requests
        self._machine: Node | None = None
        self._instances = 0

    def engines(self) -> tuple[list[Engine], list[Engine]]:
        """Producers, and consumers; a colocated engine counts as a consumer."""
        topology, options = self._scenario.topology, self._options
        producers = [
            engine
            for name in topology.producer_names
            for engine in self._instance(name, "kv_producer", options)
        ]
        role: Role | None = None if topology.colocated else "kv_consumer"
        of_consumers = msgspec.structs.replace(
            options, data_parallel_size=self._scenario.consumer_data_parallel_size
        )
        consumers = [
            engine
            for name in topology.consumer_names
            for engine in self._instance(name, role, of_consumers)
        ]
        return producers, consumers

    def _instance(self, name: str, role: Role | None, options: EngineOptions) -> list[Engine]:
        scenario, node = self._scenario, self._node(name)
        num_blocks, max_model_len = pool_of(scenario, self._requests)
        connector = None if role is None else self._connector(role, node)
        self._instances += 1
        group = DataParallelGroup(self._world.kernel, name, options.data_parallel_size)
        return [
            Engine(
                self._world,
                node,
                get_preset(scenario.model),
                options,
                group=group,
                data_parallel_rank=rank,
                geometry=scenario.geometry,
                num_blocks=num_blocks,
                max_model_len=max_model_len,
                connector=connector,
            )
            for rank in range(options.data_parallel_size)
        ]

    def _node(self, name: str) -> Node:
        """A machine of its own, or the one for all."""
        if self._scenario.topology.nodes == "own":
            return self._world.add_node(name)
        if self._machine is None:
            self._machine = self._world.add_node("n0")
        return self._machine

    @property
    def _options(self) -> EngineOptions:
        """Of every engine."""
        speculation = self._scenario.speculation
        return msgspec.structs.replace(self._scenario.engine, speculation=speculation)

    def _connector(self, role: Role, node: Node) -> ConnectorSetup:
        """Instances on one machine are configured with ports of their own, as they have to be."""
        shared = self._scenario.topology.nodes == "shared"
        offset = self._instances * _PORTS_PER_INSTANCE if shared else 0
        addresses = {
            "host_ip": node.ip,
            "http_port": _HTTP_PORT + offset,
            "handshake_port": _HANDSHAKE_PORT + offset,
            "notify_port": _NOTIFY_PORT + offset,
        }
        of_producers, of_consumers = self._scenario.producer_connector, self._scenario.connector
        kind = get_connector(of_producers if role == "kv_producer" else of_consumers)
        return ConnectorSetup(kind, role, {**addresses, **self._scenario.extra_config})
