"""Connectors under test: known by name, loaded by vLLM's own factory, never imported here."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from sim.engine.asked import WatchedSettings
from sim.errors import UsageError
from sim.extensions import by_name
from sim.guest.process import GuestProcess
from sim.guest.sources import find_spec
from sim.hints import nearest

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
_SHARED_OF_V1 = ("base", "metrics")  # what vLLM's shared code tests for with isinstance


@dataclass(frozen=True)
class ConnectorKind:
    """A connector that faultlab knows: where it is, what is copied per process, its settings."""

    name: str
    summary: str
    module: str
    class_name: str
    roots: tuple[str, ...]
    extra_config: Mapping[str, Any] = field(default_factory=dict)
    verifies: bool = False
    """Whether ``verify_reads`` makes it look at the bytes of what it has read."""
    fails_closed: bool = False
    """Whether it refuses what it cannot know to be right: a peer that is configured unlike it, an
    offer of another request's blocks, or one that lacks what it has added to MoRIIO's."""

    step_failure: str = ""
    """Where loads may be synchronous (``load_mode``), its words as it ends a step for which one
    failed: of a model with several cache groups, vLLM cannot fail one request for that."""

    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Settings that users change and campaigns draw, with values other than the default."""

    expects_what_it_logs: bool = True
    """Whether an exception in its log may be one that it has an answer to, such as a failed read.
    If so, only errors of a program, such as a TypeError, tell of a defect."""

    @property
    def modules(self) -> list[str]:
        """The module, after the packages above it that belong to it; in the order of loading."""
        words = self.module.split(".")
        names = [".".join(words[:count]) for count in range(1, len(words) + 1)]
        below = tuple(f"{root}." for root in self.roots)
        return [name for name in names if f"{name}.".startswith(below)]

    def writes(self, extra_config: Mapping[str, Any]) -> bool:
        """Whether the producer writes into the consumer's memory, so that both legs of a request
        have to be sent at once. MoRIIO and what derives from it have the key ``read_mode``, read
        here as they read it; other connectors are handed over to after the prefill."""
        mode = {**self.extra_config, **extra_config}.get("read_mode", "true")
        return str(mode).lower().strip() not in ("true", "1")


_OF_MORI = {"qp_per_transfer": (2, 4), "num_workers": (2, 4), "post_batch_size": (16,)}
CONNECTORS: dict[str, ConnectorKind] = by_name(
    "connectors",
    (
        ConnectorKind(
            name="moriio",
            summary="vLLM's own MoRIIO connector, unmodified; READ mode by default",
            module=f"{_V1}.moriio.moriio_connector",
            class_name="MoRIIOConnector",
            roots=(f"{_V1}.moriio",),
            extra_config={"read_mode": "true", "http_port": 8000},
            choices=_OF_MORI,
        ),
        ConnectorKind(
            name="reference",
            summary="slow and obviously correct: copies through a back door of the simulator",
            module="sim.reference.connector",
            class_name="ReferenceConnector",
            roots=("sim.reference.connector",),
            expects_what_it_logs=False,
        ),
        ConnectorKind(
            name="example",
            summary="vLLM's ExampleConnector, unmodified; files on a disk that all nodes share",
            module=f"{_V1}.example_connector",
            class_name="ExampleConnector",
            roots=(f"{_V1}.example_connector",),
            extra_config={"shared_storage_path": "/shared/kv"},
        ),
        ConnectorKind(
            name="hybrid",
            summary="this project's connector: hybrid READ, checked and confirmed",
            module="connector",
            class_name="HybridReadConnector",
            roots=("connector",),
            verifies=True,
            fails_closed=True,
            step_failure="the synchronous load of",
            choices=_OF_MORI,
            expects_what_it_logs=False,
        ),
    ),
    lambda kind: kind.name,
    lambda kind: f"{kind.module}:{kind.class_name}",
)


def get_connector(name: str) -> ConnectorKind:
    """A known connector, or ``package.module:Class`` for anybody's."""
    if name in CONNECTORS:
        return CONNECTORS[name]
    module, colon, class_name = name.partition(":")
    if not colon or not module or not class_name:
        raise UsageError(
            f"unknown connector {name!r}{_meant(name)}; known are "
            f"{', '.join(sorted(CONNECTORS))}, and any other is given as package.module:Class"
        )
    return ConnectorKind(name, "given on the command line", module, class_name, _roots_of(module))


def _meant(name: str) -> str:
    """A hint at a known name, or at the colon before the class."""
    if hint := nearest(name, CONNECTORS):
        return hint
    module, dot, class_name = name.strip(":").rpartition(".")
    return f" (did you mean {f'{module}:{class_name}'!r}?)" if dot else ""


def _roots_of(module: str) -> tuple[str, ...]:
    """What to copy per process: the connector's package, or the module of a bare one in vLLM."""
    if module.startswith(_V1 + "."):
        return (f"{_V1}.{module.removeprefix(_V1 + '.').partition('.')[0]}",)
    return (module.partition(".")[0],)


@cache
def in_tree_roots() -> tuple[str, ...]:
    """vLLM's own connectors, one module or package each: guests wherever a guest imports them,
    because anybody's connector may be built on one."""
    spec = find_spec(_V1)
    assert spec is not None
    modules = pkgutil.iter_modules(spec.submodule_search_locations)
    return tuple(f"{_V1}.{m.name}" for m in modules if m.name not in _SHARED_OF_V1)


Role = Literal["kv_producer", "kv_consumer"]


@dataclass(frozen=True)
class SideChannel:
    """Where an engine's connector listens for messages of its peers."""

    host: str
    handshake_port: int
    notify_port: int

    def __str__(self) -> str:
        """In the form of MoRIIO's ZMQ addresses."""
        return f"host:{self.host},handshake:{self.handshake_port},notify:{self.notify_port}"


@dataclass(frozen=True)
class ConnectorSetup:
    """A connector on one engine: its role and the addresses it is configured with."""

    kind: ConnectorKind
    role: Role
    extra_config: Mapping[str, Any]
    asked: set[str] = field(default_factory=set, compare=False)
    """Keys of ``settings`` that it has looked for so far, there or not."""

    @property
    def module(self) -> str:
        return self.kind.module

    @property
    def settings(self) -> dict[str, Any]:
        """What vLLM calls kv_connector_extra_config."""
        return {**self.kind.extra_config, **self.extra_config}

    @property
    def side_channel(self) -> SideChannel:
        settings = self.settings
        return SideChannel(
            str(settings["host_ip"]), int(settings["handshake_port"]), int(settings["notify_port"])
        )

    def load(self, guest: GuestProcess) -> None:
        """Execute the process's copy of the module; UsageError when it has no such connector."""
        module, name = guest.load(self.kind.module), self.kind.class_name
        if _is_connector(getattr(module, name, None)):
            return
        connectors = sorted(key for key, value in vars(module).items() if _is_connector(value))
        what = f"{name!r} of module {self.kind.module} is no connector"
        if not hasattr(module, name):
            what = f"module {self.kind.module} has no class {name!r}{nearest(name, connectors)}"
        raise UsageError(
            f"connector {self.kind.name}: {what}; expected a subclass of vLLM's "
            f"KVConnectorBase_V1, of which that module has: {', '.join(connectors) or 'none'}"
        )

    def with_settings(self, settings: Mapping[str, Any]) -> ConnectorSetup:
        """The same connector with settings added."""
        return replace(self, extra_config={**self.extra_config, **settings})

    def watch(self, transfer: Any) -> None:
        """Note in ``asked`` what is looked for in vLLM's KVTransferConfig ``transfer``."""
        given = transfer.kv_connector_extra_config
        transfer.kv_connector_extra_config = WatchedSettings(given, self.asked)

    def transfer_config(self, guest: GuestProcess) -> dict[str, Any]:
        """Keyword arguments of vLLM's KVTransferConfig for the engine that runs in ``guest``."""
        return {
            "kv_connector": self.kind.class_name,
            "kv_connector_module_path": guest.alias(self.kind.module),
            "kv_connector_extra_config": self.settings,
        }


def _is_connector(value: Any) -> bool:
    # Late, because the names of connectors are looked up where vLLM shall not be loaded.
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: PLC0415
        KVConnectorBase_V1,
    )

    is_class = isinstance(value, type) and value is not KVConnectorBase_V1
    return is_class and issubclass(value, KVConnectorBase_V1)
