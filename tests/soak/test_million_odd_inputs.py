"""More than a million odd messages and parameters in all, as
`tests/unit/test_connector_odd_input.py` sends some thousands."""

from __future__ import annotations

import pytest
from odd_connections import OddConnections, peer_module
from odd_input import BATCH, give, quiet
from odd_params import GROUPS, OddParams
from odd_ports import OddPorts

pytestmark = pytest.mark.soak


def test_a_producers_ports_take_any_message() -> None:
    ports = OddPorts()
    with quiet():
        give(ports.check, seeds=1_300_000 // BATCH)
    ports.close()
    counts = dict(ports.counters.take())
    print(counts)
    assert counts["malformed_messages"] >= 1_000_000  # the rest is well formed, if of nobody


def test_a_consumers_connections_take_any_handshake_and_answer() -> None:
    """A handshake and three answers each time."""
    with peer_module() as module, quiet():
        connections = OddConnections(module)
        give(connections.check, seeds=420_000 // (4 * BATCH))
    print(connections.connected, dict(connections.counters.take()))


@pytest.mark.parametrize("model", GROUPS)
def test_schedulers_take_any_parameters(model: str) -> None:
    """A producer's and a consumer's."""
    params = OddParams(model)
    with quiet():
        give(params.check, seeds=210_000 // (2 * BATCH))
    print(params.loads, params.refused)
