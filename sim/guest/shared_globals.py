"""vLLM module globals that all simulated processes share, and their value in each process.

Most of vLLM stays one shared copy. Where it keeps the state of a process in a module global
(the forward context, the current configuration, the connector agent, the parallel groups), the
value of the process that is about to run is put in place before it runs.
"""

from __future__ import annotations

import importlib
from typing import Any

from sim.kernel import Process

SHARED_GLOBALS: tuple[tuple[str, str], ...] = (
    ("vllm.forward_context", "_forward_context"),
    ("vllm.config.vllm", "_current_vllm_config"),
    ("vllm.config.vllm", "_current_prefix"),
    ("vllm.distributed.kv_transfer.kv_transfer_state", "_KV_CONNECTOR_AGENT"),
    ("vllm.distributed.parallel_state", "_WORLD"),
    ("vllm.distributed.parallel_state", "_TP"),
    ("vllm.distributed.parallel_state", "_PP"),
    ("vllm.distributed.parallel_state", "_DP"),
    ("vllm.distributed.parallel_state", "_DCP"),
    ("vllm.distributed.parallel_state", "_PCP"),
    ("vllm.distributed.parallel_state", "_EP"),
)


_KEY = "shared globals"


class SharedGlobals:
    """Swaps the shared globals at each change of process; ``restore`` ends with the originals."""

    def __init__(self) -> None:
        self._slots: list[tuple[dict[str, Any], str]] = []
        for module_name, attribute in SHARED_GLOBALS:
            module = importlib.import_module(module_name)
            if attribute in vars(module):
                self._slots.append((vars(module), attribute))
        self._original = self._read()
        self._owner: Process | None = None

    def switch_to(self, process: Process) -> None:
        """Kernel hook: ``process`` runs next."""
        if self._owner is not None:
            self._owner.resources[_KEY] = self._read()
        self._owner = process
        self._write(process.resources.get(_KEY, self._original))

    def restore(self) -> None:
        self._owner = None
        self._write(self._original)

    def _read(self) -> list[Any]:
        return [names[name] for names, name in self._slots]

    def _write(self, values: list[Any]) -> None:
        for (names, name), value in zip(self._slots, values, strict=True):
            if names[name] is not value:
                names[name] = value
