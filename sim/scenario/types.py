"""A run as data: everything, besides the versions of the software, that its outcome depends on."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

import msgspec

from sim.engine.options import EngineOptions
from sim.model.presets import Geometry
from sim.router.options import RouterOptions, Seconds
from sim.scenario.workloads import GeneratedWorkload, Workload

SCHEMA_VERSION: Final = 1

Count = Annotated[int, msgspec.Meta(ge=1)]


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which engines there are: producers and consumers, or one colocated engine."""

    producers: Count = 1
    consumers: Count = 1
    colocated: bool = False
    """One engine without a connector does both; leave the numbers at 1 then."""

    def __post_init__(self) -> None:
        """Refuse numbers that would be ignored."""
        if self.colocated and (self.producers, self.consumers) != (1, 1):
            raise ValueError("colocated means a single engine: leave producers and consumers out")

    @property
    def num_engines(self) -> int:
        """How many engines run."""
        return 1 if self.colocated else self.producers + self.consumers


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
    """A directory whose vLLM sources take precedence over the installed ones."""
    topology: Topology = Topology()
    engine: EngineOptions = EngineOptions()
    workload: Workload = GeneratedWorkload(requests=8)
    router: RouterOptions = RouterOptions()
    fabric: Literal["cx7"] = "cx7"
    network_latency_us: Annotated[int, msgspec.Meta(ge=0)] = 50
    """One way, between nodes, for control messages."""
    perturb: bool = False
    """Draw the order of simultaneous events, and thread switches, from the seed."""
    check: Literal["incremental", "full"] = "incremental"
    """Compare only what changed since a request last read it, or everything each time."""
    quiet_phase_s: Seconds = 180.0
    """Undisturbed time at the end, within which whatever is still open has to end."""
    max_virtual_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 7200.0

    def digest(self) -> str:
        """32 hexadecimal digits that name this scenario, whatever its file looks like."""
        encoded = msgspec.json.encode(self, order="deterministic")
        return hashlib.blake2b(encoded, digest_size=16).hexdigest()
