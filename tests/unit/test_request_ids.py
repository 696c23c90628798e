"""Names of requests and of their legs."""

from __future__ import annotations

import pytest

from sim.request_ids import leg_id, logical_id


@pytest.mark.parametrize("kind", ["p", "d", "c"])
@pytest.mark.parametrize("logical", ["req-3", "a", "req-3-p0", "x-d"])
def test_a_leg_leads_back_to_its_request(logical: str, kind: str) -> None:
    """Also when the request's own name looks like a leg's."""
    assert logical_id(leg_id(logical, kind, 12)) == logical


@pytest.mark.parametrize("name", ["req-3", "req-p", "req-x0", "p0"])
def test_what_is_no_leg_stands_for_itself(name: str) -> None:
    """Requests that did not come through the router have one name only."""
    assert logical_id(name) == name
