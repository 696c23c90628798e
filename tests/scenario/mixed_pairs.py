"""Makes the pairs of `mixed_connector` known to the simulator, for one test."""

from __future__ import annotations

import pytest

from sim.engine.connectors import CONNECTORS, ConnectorKind

HYBRID_READS_FROM_UPSTREAM = "HybridReadsFromUpstream"
PAIRS = (HYBRID_READS_FROM_UPSTREAM, "UpstreamReadsFromHybrid")


def know_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in PAIRS:
        kind = ConnectorKind(
            name=pair,
            summary="for these tests",
            module="mixed_connector",
            class_name=pair,
            roots=("mixed_connector", "connector"),
            extra_config={"read_mode": "true", "http_port": 8000},
        )
        monkeypatch.setitem(CONNECTORS, pair, kind)
