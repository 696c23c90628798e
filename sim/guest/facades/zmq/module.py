"""The modules that guests get for ``zmq`` and what is below it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import zmq

from sim.guest.facades.proxy import Facade, unsupported
from sim.guest.facades.zmq.interface import CONTEXTS, Context, Poller, Socket
from sim.kernel import Kernel, Process
from sim.network import Network

_HARMLESS = (
    "Again", "ContextOption", "ContextTerminated", "DeviceType", "Errno", "Event", "Flag",
    "InterruptedSystemCall", "MessageOption", "NotDone", "PollEvent", "SocketOption",
    "SocketType", "ZMQBaseError", "ZMQBindError", "ZMQError", "ZMQVersionError", "constants",
    "error", "has", "pyzmq_version", "pyzmq_version_info", "strerror", "zmq_version",
    "zmq_version_info", "__version__",
)  # fmt: skip
# Each has sockets, threads or an event loop of its own.
_REFUSED_SUBMODULES = ("auth", "devices", "eventloop", "green", "log", "ssh")


def make(kernel: Kernel, network: Network) -> dict[str, ModuleType]:
    """The facades of ``zmq`` and its submodules, by name, for all processes of one run."""
    context_class = _bound_classes(kernel, network)
    members: dict[str, Any] = {name: getattr(zmq, name) for name in _HARMLESS}
    members |= {name: getattr(zmq, name) for name in zmq.constants.__all__}
    members |= {
        "Context": context_class,
        "Socket": Socket,
        "Poller": context_class.poller_class,
        "asyncio": _asyncio(kernel),
    }
    kernel.on_crash(_crashed)
    modules: dict[str, ModuleType] = {
        f"zmq.{name}": Facade(kernel, f"zmq.{name}", {}) for name in _REFUSED_SUBMODULES
    }
    return {"zmq": Facade(kernel, "zmq", members), "zmq.asyncio": members["asyncio"], **modules}


def _bound_classes(kernel: Kernel, network: Network) -> type[Context]:
    poller_class = type("Poller", (Poller,), {"_kernel": kernel})
    return type(
        "Context",
        (Context,),
        {
            "_kernel": kernel,
            "_network": network,
            "_chance": kernel.seed.stream("zmq/reconnect"),
            "poller_class": poller_class,
        },
    )


def _asyncio(kernel: Kernel) -> ModuleType:
    """Its classes appear in annotations that run at import; making one is refused."""

    def refuse(name: str) -> type:
        def __init__(self: Any, *_args: Any, **_kwargs: Any) -> None:
            raise unsupported(kernel, f"zmq.asyncio.{name}")

        return type(name, (), {"__init__": __init__})

    names = ("Context", "Socket", "Poller")
    return Facade(kernel, "zmq.asyncio", {name: refuse(name) for name in names})


def _crashed(process: Process) -> None:
    for context in process.resources.pop(CONTEXTS, []):
        context.die()
