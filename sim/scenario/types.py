"""A run as data: everything, besides the versions of the software, that its outcome depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from sim.engine.options import EngineOptions, rank_names
from sim.fabric import FabricProfile, named_fabric
from sim.model.arena import MOST_DEVICES
from sim.model.presets import Geometry, get_preset
from sim.model.speculation import Speculation
from sim.router.options import COLOCATED_PHASES, RouterOptions, Seconds
from sim.scenario.workloads import GeneratedWorkload, Workload

SCHEMA_VERSION: Final = 1

Count = Annotated[int, msgspec.Meta(ge=1)]


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which engines there are: producers and consumers, or one colocated engine."""

    producers: Count = 1
    consumers: Count = 1
    colocated: bool = False
    """One engine without a connector does both; leave the numbers at 1 then."""
    nodes: Literal["own", "shared"] = "own"
    """Whether every instance has a machine of its own, or all share one."""
    consumer_data_parallel_size: Count | None = None
    """Data-parallel ranks of consumers, if not as many as ``engine.data_parallel_size``."""
    producer_connector: str | None = None
    """Of producers, if not the same as the consumers' ``connector``: a mixed fleet."""

    def __post_init__(self) -> None:
        """Refuse numbers that would be ignored."""
        consumers = (self.consumers, self.consumer_data_parallel_size)
        others = (self.producers, *consumers, self.producer_connector)
        if self.colocated and others != (1, 1, None, None):
            raise ValueError("colocated means a single engine: leave producers and consumers out")

    @property
    def producer_names(self) -> list[str]:
        """Of the instances that only prefill."""
        return [] if self.colocated else [f"p{number}" for number in range(self.producers)]

    @property
    def consumer_names(self) -> list[str]:
        """Of the instances that decode; a colocated one is among them."""
        return ["c0"] if self.colocated else [f"d{number}" for number in range(self.consumers)]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run. Equal scenarios on equal software give equal event hashes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    model: str = "llama"
    geometry: Geometry = "reduced"
    connector: str = "moriio"
    extra_config: dict[str, Any] = {}
    """Added to the connector's own settings (kv_connector_extra_config)."""
    overlay: str | None = None
    """A directory whose vLLM sources take precedence over the installed ones; made absolute, as
    the path of a trace is."""
    topology: Topology = Topology()
    engine: EngineOptions = EngineOptions()
    workload: Workload = GeneratedWorkload(requests=8)
    router: RouterOptions = RouterOptions()
    faults: tuple[dict[str, Any], ...] = ()
    """What is to go wrong, for whoever injects it; nothing here looks inside."""
    fabric: str | FabricProfile = "cx7"
    """A named one, or its numbers; in a file also the path of another file, ending in .toml."""
    network_latency_us: Annotated[int, msgspec.Meta(ge=0)] = 50
    """One way, between nodes, for control messages."""
    perturb: bool = False
    """Draw the order of simultaneous events, and thread switches, from the seed."""
    skip_empty_steps: bool = True
    """Pass over engine steps that cannot find anything; the same happens without."""
    check: Literal["incremental", "full"] = "incremental"
    """Compare only what changed since a request last read it, or everything each time."""
    quiet_phase_s: Seconds = 180.0
    """Undisturbed time at the end, within which whatever is still open has to end."""
    max_virtual_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 7200.0

    @property
    def producer_connector(self) -> str:
        """As ``connector``, of the producers."""
        return self.topology.producer_connector or self.connector

    @property
    def consumer_data_parallel_size(self) -> int:
        """Data-parallel ranks of each consumer."""
        return self.topology.consumer_data_parallel_size or self.engine.data_parallel_size

    @property
    def fabric_profile(self) -> FabricProfile:
        """The numbers of ``fabric``; UsageError when there is none of that name."""
        return named_fabric(self.fabric) if isinstance(self.fabric, str) else self.fabric

    @property
    def producer_engines(self) -> list[str]:
        """The names of the engines that only prefill, every data-parallel rank for itself."""
        return _engines(self.topology.producer_names, self.engine.data_parallel_size)

    @property
    def consumer_engines(self) -> list[str]:
        """The names of the engines that decode, every data-parallel rank for itself."""
        return _engines(self.topology.consumer_names, self.consumer_data_parallel_size)

    @property
    def engine_names(self) -> list[str]:
        """Of all engines that run."""
        return [*self.producer_engines, *self.consumer_engines]

    @property
    def num_engines(self) -> int:
        """How many engines run, every data-parallel rank counted."""
        topology, size = self.topology, self.engine.data_parallel_size
        if topology.colocated:
            return size
        return topology.producers * size + topology.consumers * self.consumer_data_parallel_size

    @property
    def num_ranks(self) -> int:
        """How many devices have a KV cache."""
        return self.num_engines * self.engine.tp_size

    @property
    def speculation(self) -> Speculation | None:
        """What its engines speculate with; a model may do so by itself."""
        return self.engine.speculation or get_preset(self.model).speculation

    def __post_init__(self) -> None:
        """Refuse what the router can do with other engines only; take the overlay's path from the
        current directory."""
        if self.overlay is not None:
            msgspec.structs.force_setattr(self, "overlay", str(Path(self.overlay).absolute()))
        if self.num_ranks > MOST_DEVICES:
            raise ValueError(
                f"the engines of topology, times engine.data_parallel_size and engine.tp_size, are "
                f"{self.num_ranks} devices, and a run has at most {MOST_DEVICES}; give fewer"
            )
        if self.topology.colocated:
            self._require_one_leg()
        if self._num_decoding == 1:
            for number, retry in enumerate(self.router.retries):
                if retry.consumer == "other":
                    raise ValueError(
                        f"router.retries[{number}].consumer: is 'other', but there is one decoding "
                        "engine; raise topology.consumers, or say same"
                    )

    @property
    def _num_decoding(self) -> int:
        """Engines that a retry may choose from."""
        ranks = self.consumer_data_parallel_size
        return self.num_engines if self.topology.colocated else self.topology.consumers * ranks

    def _require_one_leg(self) -> None:
        """A colocated request is not handed off."""
        if self.router.holds:
            raise ValueError(
                f"router.holds: {self.router.holds[0].request!r} cannot be held between prefill "
                "and decode, because topology.colocated has one engine do both; leave one of the "
                "two out"
            )
        for number, abort in enumerate(self.router.aborts):
            if abort.on_phase is not None and abort.on_phase not in COLOCATED_PHASES:
                raise ValueError(
                    f"router.aborts[{number}].on_phase: is {abort.on_phase!r}, which no request "
                    f"goes through with topology.colocated; use {', '.join(COLOCATED_PHASES)}"
                )

    def digest(self, keys: Mapping[str, Any] | None = None) -> str:
        """32 hexadecimal digits that name this scenario, whatever its file looks like.

        Args:
            keys: the only ones that count, nested; all by default. A file that was written by an
                earlier version lacks those that came later.
        """
        document = msgspec.to_builtins(self, order="deterministic")
        encoded = msgspec.json.encode(document if keys is None else _only(document, keys))
        return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _only(document: Any, keys: Any) -> Any:
    """``document`` without what ``keys`` does not have."""
    if not isinstance(document, dict) or not isinstance(keys, Mapping):
        return document
    return {name: _only(value, keys[name]) for name, value in document.items() if name in keys}


def _engines(instances: list[str], size: int) -> list[str]:
    return [engine for instance in instances for engine in rank_names(instance, size)]
