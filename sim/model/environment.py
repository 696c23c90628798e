"""The environment variables under which vLLM runs on a CPU as it does in production.

vLLM reads them while it is being imported (platform) and later (model runner), so they have to be
in place before the first ``import vllm``. This module imports nothing from vLLM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from sim.errors import UsageError

VLLM_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        # Without a GPU vLLM finds no platform, and then silently turns the hybrid cache off.
        "VLLM_TARGET_DEVICE": "cpu",
        # The CPU platform would otherwise fall back to the older runner and its scheduling.
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        # Connectors that move recurrent state require it; else it depends on the host's CPU.
        "VLLM_SSM_CONV_STATE_LAYOUT": "DS",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
)


def prepare_environment() -> None:
    """Set the variables that are missing.

    Raises:
        UsageError: one is set to something else; vLLM would then behave differently.
    """
    for name, wanted in VLLM_ENVIRONMENT.items():
        actual = os.environ.setdefault(name, wanted)
        if actual != wanted:
            raise UsageError(
                f"{name}={actual!r} is set, but runs here need {wanted!r}: unset {name}"
            )


@contextmanager
def environment_unchanged() -> Iterator[None]:
    """Undo what the block does to ``os.environ``.

    vLLM's CPU platform exports ``LD_PRELOAD`` and others while it checks a configuration, and
    every process started later would inherit them.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in sorted(os.environ.keys() - before.keys()):
            del os.environ[name]
        os.environ.update(before)
