"""What every test process has in common: vLLM's environment, and properties without a clock."""

from __future__ import annotations

import os

from hypothesis import settings

from faults.cli.reexec import HASH_SEED, simulation_environment

# Before any test imports vLLM. The hash seed cannot be changed any more (make test sets it), and
# the caller's stays visible to tests that start processes of their own.
os.environ.update({k: v for k, v in simulation_environment(os.environ).items() if k != HASH_SEED})

# No deadline: a slow machine is not a failure. Derandomised: a red test stays red when repeated.
settings.register_profile("faultlab", deadline=None, derandomize=True)
settings.load_profile("faultlab")
