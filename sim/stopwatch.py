"""Wall time of a run and of its parts: for people and benchmarks, never for decisions."""

from __future__ import annotations

import time

wall_clock = time.perf_counter  # bound before the fence guards the name
