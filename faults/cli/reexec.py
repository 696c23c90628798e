"""Replaces this process by one whose environment makes simulations reproducible.

vLLM iterates sets of strings, so a run depends on the hash seed, which Python reads only when it
starts; and vLLM reads its own variables when it is imported. Both are settled here, before
anything heavy is loaded. Arguments, interpreter flags and the exit code stay the caller's own,
because the process is replaced and not wrapped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from sim.model.environment import VLLM_ENVIRONMENT

HASH_SEED = "PYTHONHASHSEED"
CALLER_HASH_SEED = "FAULTLAB_CALLER_HASHSEED"
# Holds the process id, which survives the replacement but not a fork: a child that inherits the
# variable is a different process and may replace itself once, too.
REEXECUTED = "FAULTLAB_REEXECUTED_PID"

# A testbed never reports usage to anybody.
_FIXED = {HASH_SEED: "0", **VLLM_ENVIRONMENT, "DO_NOT_TRACK": "1"}
_DEFAULTS = {"VLLM_LOGGING_LEVEL": "ERROR"}
# vLLM's other variables (host address, ports, time-outs) would change what guests do.
_KEPT = (*_DEFAULTS, *_FIXED, "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT")


class ReexecError(RuntimeError):
    """The new process still has a random hash seed, so trying again would never end."""


def simulation_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of ``environ`` in which simulations are reproducible."""
    kept = {k: v for k, v in environ.items() if not k.startswith("VLLM_") or k in _KEPT}
    return {**_DEFAULTS, **kept, **_FIXED}


def adopt_environment() -> None:
    """Make the environment of this process one in which simulations are reproducible, but for the
    hash seed. vLLM must not have been imported yet, nor anything else that reads it."""
    wanted = simulation_environment(os.environ)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def settle_process() -> None:
    """Replace this process unless it already has the environment that simulations need.

    Raises:
        ReexecError: it was replaced once and Python ignored ``PYTHONHASHSEED``.
    """
    wanted = simulation_environment(os.environ)
    already_replaced = os.environ.get(REEXECUTED) == str(os.getpid())
    if not sys.flags.hash_randomization:
        if not already_replaced:
            os.environ[CALLER_HASH_SEED] = os.environ.get(HASH_SEED, "random")
        adopt_environment()
        return
    if already_replaced:
        raise ReexecError(
            "Python ignored PYTHONHASHSEED=0, so runs would not be reproducible; "
            "start it without -E, -I and -R"
        )
    wanted[CALLER_HASH_SEED] = os.environ.get(HASH_SEED, "random")
    wanted[REEXECUTED] = str(os.getpid())
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)
