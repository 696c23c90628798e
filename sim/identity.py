"""What a result depends on besides scenario and seed: interpreter, libraries, our own code."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = ("vllm", "torch", "numpy", "simpy", "greenlet", "msgspec", "pyzmq")


@cache
def versions() -> dict[str, str]:
    """Versions by name; ``faultlab`` is a hash over the simulator's own source files."""
    found = {"python": platform.python_version(), "faultlab": source_digest(Path(__file__).parent)}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def differences(recorded: dict[str, str]) -> list[str]:
    """Sentences about every version that differs from ``recorded``."""
    current = versions()
    return [
        f"{name}: recorded with {recorded.get(name, 'none')}, here {current.get(name, 'none')}"
        for name in sorted({*recorded, *current})
        if recorded.get(name) != current.get(name)
    ]


def source_digest(root: Path) -> str:
    """Hash of the Python files below ``root``, and of their names."""
    total = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()
