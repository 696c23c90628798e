"""A run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, from its event log.

Lanes are the router, each engine's tasks and ranks, and its network card; flows are messages and
transfers; counters are blocks, requests and transfers in flight. Times are virtual.
"""

from __future__ import annotations

from faults.trace.build import build
from faults.trace.events import Trace

__all__ = ["Trace", "build"]
