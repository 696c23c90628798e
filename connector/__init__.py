"""The vLLM KV connector of this project: hybrid READ over mori.io. Production code.

Load it out of tree::

    {"kv_connector": "HybridReadConnector", "kv_connector_module_path": "connector"}

``core`` decides, as pure functions and tables of the standard library only; the other modules do
the I/O. Nothing here imports ``sim``, ``faults`` or the tests, nor simpy or greenlet, so that it
installs into a serving container as it is. ``import connector`` is free of vLLM: the class is
loaded when it is asked for.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "HybridReadConnector":
        from connector.hybrid import HybridReadConnector  # noqa: PLC0415  # vLLM takes seconds

        return HybridReadConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
