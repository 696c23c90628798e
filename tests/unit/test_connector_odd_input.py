"""Whatever others send: no thread ends, nothing that is kept grows, no error gets through.

A soak run (`tests/soak/test_million_odd_inputs.py`) sends a million.
"""

from __future__ import annotations

import pytest
from odd_connections import OddConnections, peer_module
from odd_input import give, quiet
from odd_params import GROUPS, OddParams
from odd_ports import OddPorts


@pytest.mark.requirement("R17", "R18", "S6")
def test_a_producers_ports_take_any_message() -> None:
    """Handshakes, questions, renewals and releases, changed in their fields or their bytes."""
    ports = OddPorts()
    with quiet():
        give(ports.check, seeds=8)
    ports.close()
    counts = ports.counters.take()
    assert all(counts[name] for name in ("malformed_messages", "releases", "renewals")), counts


@pytest.mark.requirement("R15", "R18", "S6")
def test_a_consumers_connections_take_any_handshake_and_answer() -> None:
    with peer_module() as module, quiet():
        connections = OddConnections(module)
        give(connections.check, seeds=5)
    assert connections.connected > 10
    assert connections.counters.take()["malformed_messages"] > 10


@pytest.mark.requirement("R10", "R17", "R18")
@pytest.mark.parametrize("model", GROUPS)
def test_schedulers_take_any_parameters(model: str) -> None:
    """Of a model with recurrent state, and of one without."""
    params = OddParams(model)
    with quiet():
        give(params.check, seeds=5)
    assert min(params.loads, params.refused) > 10


@pytest.mark.requirement("R10")
@pytest.mark.parametrize("transfer_id", [["t1"], {"t1": 1}], ids=str)
def test_a_transfer_id_may_be_of_any_type(transfer_id: object) -> None:
    """In the parameters of a prefill, as a client or a router gives them."""
    OddParams("full").prefill({"do_remote_decode": True, "transfer_id": transfer_id}, 0)
