"""Names of requests and of their legs."""

from __future__ import annotations

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import (
    get_peer_zmq_from_request_id,
)

from sim.engine.connectors import SideChannel
from sim.request_ids import addressed_id, leg_id, leg_kind, leg_of, logical_id


@pytest.mark.parametrize("kind", ["p", "d", "c"])
@pytest.mark.parametrize("logical", ["req-3", "a", "req-3-p0", "x-d"])
def test_a_leg_leads_back_to_its_request(logical: str, kind: str) -> None:
    """Also when the request's own name looks like a leg's."""
    assert logical_id(leg_id(logical, kind, 12)) == logical


@pytest.mark.parametrize("name", ["req-3", "req-p", "req-x0", "p0"])
def test_what_is_no_leg_stands_for_itself(name: str) -> None:
    """Requests that did not come through the router have one name only."""
    assert logical_id(name) == name


PRODUCER = str(SideChannel("10.0.0.1", 6301, 61005))
CONSUMER = str(SideChannel("10.0.0.2", 6301, 61005))


@pytest.mark.parametrize("leg", ["req-3-p0", "a-d1", "x_y-0123456789abcdef0123456789abcdef-p0"])
def test_each_end_finds_its_peer_in_an_addressed_id(leg: str) -> None:
    """With the connector's own search, in the name of either role."""
    request_id = addressed_id(leg, PRODUCER, CONSUMER)
    assert get_peer_zmq_from_request_id(request_id, is_producer=True) == CONSUMER
    assert get_peer_zmq_from_request_id(request_id, is_producer=False) == PRODUCER


@pytest.mark.parametrize("leg", ["req-3-p0", "a-d1", "x_y-0123456789abcdef0123456789abcdef-p0"])
def test_an_addressed_id_leads_back_to_its_leg(leg: str) -> None:
    """And from there to the request; a leg without addresses is one already."""
    request_id = addressed_id(leg, PRODUCER, CONSUMER)
    assert leg_of(request_id) == leg_of(leg) == leg
    assert logical_id(request_id) == logical_id(leg)
    assert leg_kind(request_id) == leg_kind(leg)
