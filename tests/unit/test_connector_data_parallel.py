"""Data-parallel ranks, of which vLLM tells some that they are alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.core.offer import parse_address
from connector.data_parallel import address_of, rank_for_ports, shares_a_front_end

PLACE = {"remote_host": "10.0.0.1", "remote_handshake_port": 6301, "remote_notify_port": 61005}


def parallel(rank: int, size: int, local: int, index: int, *, external: bool = False) -> Any:
    return SimpleNamespace(
        data_parallel_rank=rank,
        data_parallel_size=size,
        data_parallel_size_local=local,
        data_parallel_index=index,
        data_parallel_external_lb=external,
    )


def config(place: Any, name: str) -> Any:
    return SimpleNamespace(
        parallel_config=place, kv_transfer_config=SimpleNamespace(engine_id=name)
    )


@pytest.mark.requirement("R6")
@pytest.mark.parametrize(
    ("place", "port_rank"),
    [
        (parallel(0, 1, 1, 0), 0),
        (parallel(3, 4, 2, 3), 1),  # each machine counts from 0
        (parallel(0, 1, 1, 3), 3),  # of a model without experts
    ],
)
def test_a_producer_listens_where_its_consumers_dial(place: Any, port_rank: int) -> None:
    """By what the parameters say of its rank."""
    assert rank_for_ports(place) == port_rank
    address = parse_address({**PLACE, **address_of(place), "tp_size": 2}, tp_size=2)
    assert address.port_of(address.handshake_port, 1) == 6301 + 2 * port_rank + 1


@pytest.mark.requirement("R17")
@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        (parallel(0, 1, 1, 0), "decoder", False),
        (parallel(0, 2, 2, 0), "decoder_dp0", True),
        (parallel(0, 1, 1, 0), "decoder_dp0", True),
        (parallel(0, 1, 1, 1), "decoder_dp1", True),
        (parallel(0, 1, 1, 1, external=True), "decoder_dp1", False),
    ],
)
def test_samples_may_be_sent_to_any_rank_of_one_front_end(
    place: Any, name: str, expected: bool
) -> None:
    """The first rank of a model without experts is told apart by its engine's name alone."""
    assert shares_a_front_end(config(place, name)) is expected
