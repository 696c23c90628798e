"""What a server's log tells of its start: how vLLM lays caches out, and what the connector says.

What the connector registered is told by `hw_tests.registered`.
"""

from __future__ import annotations

import re
from pathlib import Path

_MOST_LINES = 40
_TELLING = re.compile(
    r"KV cache layout|KV cache size|GPU blocks|Maximum concurrency|block size|page size"
    r'|"event": "(?:started|lesser-tested-layout|setting-replaced'
    r'|sync-loads-fail-the-step)"'
)
"""vLLM's lines about blocks of attention, of states and of kernels, and the connector's events."""


def boot_lines(log: Path) -> list[str]:
    """Those of ``log``, each once, in their order; no more than a start has."""
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    return list(dict.fromkeys(line for line in lines if _TELLING.search(line)))[:_MOST_LINES]
