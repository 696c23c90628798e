"""This kernel beside what else could run the same exchange of messages."""

from __future__ import annotations

import time
from typing import Any

from faults.bench.backends import BACKENDS, REAL_CLOCK, Backend, missing, simloop_version
from faults.bench.exchange import Exchange
from sim.stopwatch import wall_clock

_cpu_clock = time.process_time  # bound here, before the fence guards the clocks of a run
PAIRS = (10, 100, 1_000)
MESSAGES = 50


def compared(pairs: tuple[int, ...] = PAIRS, messages: int = MESSAGES) -> dict[str, Any]:
    """Figures by number of pairs and backend, and why a backend is not among them."""
    left_out = missing()
    sizes = []
    for number in pairs:
        exchange = Exchange(number, messages)
        found = {
            name: _figures(backend, exchange)
            for name, backend in BACKENDS.items()
            if name not in left_out
        }
        virtual_s = exchange.duration_s()
        sizes.append({"pairs": number, "virtual_s": virtual_s, "backends": found})
    return {
        "messages": messages,
        "sizes": sizes,
        "left_out": left_out,
        "simloop": simloop_version(),
        "real_clock": list(REAL_CLOCK),
    }


def _figures(backend: Backend, exchange: Exchange) -> dict[str, Any]:
    """Of one run. ``in_order`` is the share of consumers that took their messages in the order in
    which they were to be sent."""
    cpu_s, wall_s = _cpu_clock(), wall_clock()
    try:
        taken = backend(exchange)
    except RuntimeError as error:
        return {"failed": str(error)}
    cpu_s, wall_s = _cpu_clock() - cpu_s, wall_clock() - wall_s
    expected = exchange.deliveries()
    same = sum(got == planned for got, planned in zip(taken, expected, strict=True))
    return {
        "events_per_s": exchange.events / cpu_s,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "virtual_per_wall": exchange.duration_s() / wall_s,
        "in_order": same / exchange.pairs,
    }
