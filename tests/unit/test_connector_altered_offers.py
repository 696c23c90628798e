"""An offer of which a router has altered one value: refused, or what is loaded stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from connector.core.errors import MalformedPayload
from connector.core.groups import Group, GroupKind, TransferGroups
from connector.core.offer import EXTENSION_KEY, HoldId, Offer, make_extension, parse_offer
from connector.core.prompt import prompt_of

RANKS = 2
TOKENS = list(range(1000, 1112))
PROMPT = prompt_of(len(TOKENS), TOKENS)
GROUPS = TransferGroups((Group(GroupKind.FULL, ("a",), 16),))
BLOCKS = [[11, 12, 13, 14, 15, 16, 17]]
OFFER: dict[str, Any] = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "10.0.0.1:6301",
    "remote_host": "10.0.0.1",
    "remote_handshake_port": 6301,
    "remote_notify_port": 61005,
    "remote_dp_rank": 0,
    "remote_dp_size": 1,
    "remote_dp_size_local": 1,
    "remote_dp_rank_override": True,
    "tp_size": RANKS,
    "transfer_id": "tx-1",
    "remote_block_ids": BLOCKS,
    EXTENSION_KEY: make_extension(HoldId("start-1", 7), BLOCKS, [0], 60.0, PROMPT, tp_size=RANKS),
}
DROPPED = object()
VALUES: tuple[Any, ...] = (
    *(DROPPED, None, "", [], {}, True, False, -1, 0, 1, 2, 3, 4, 8, 59.5, 1e-9, 6302, 61006),
    *("1", "4", "tx-2", "start-2", "10.0.0.2", [0], [16], [BLOCKS[0][::-1]], [[*range(21, 28)]]),
)
HARMLESS = {
    # Somebody else answers there, whose welcome tells another start, or another rank.
    "remote_host": "address",
    "remote_handshake_port": "address",
    "remote_dp_rank": "address",
    "remote_dp_size_local": "address",
    # The release reaches nobody, or names another transfer: the lease ends by itself.
    "remote_notify_port": "address",
    "transfer_id": "transfer_id",
    # Renewed too seldom, the blocks are no longer held, which the producer says when it is asked.
    f"{EXTENSION_KEY}.lease_s": "lease_s",
}
PATHS = [*OFFER, "remote_tp_size", *(f"{EXTENSION_KEY}.{key}" for key in OFFER[EXTENSION_KEY])]


def parsed(params: dict[str, Any]) -> Offer:
    return parse_offer(params, GROUPS, prompt=PROMPT, tp_size=RANKS)


def accepted(path: str) -> Iterator[tuple[Any, Offer]]:
    """Values at ``path`` that are not refused, and the offers that they make."""
    *outer, key = path.split(".")
    for value in VALUES:
        params = deepcopy(OFFER)
        where = params[EXTENSION_KEY] if outer else params
        if value is DROPPED:
            where.pop(key, None)
        else:
            where[key] = value
        try:
            yield value, parsed(params)
        except MalformedPayload:
            continue


@pytest.mark.requirement("R10", "R14", "R15")
@pytest.mark.parametrize("path", PATHS)
def test_no_single_altered_value_makes_other_bytes_be_loaded(path: str) -> None:
    """Without the connector's own key nobody vouches for the offer: the peer's welcome, which has
    it, tells that it was dropped."""
    right = parsed(OFFER)
    for value, offer in accepted(path):
        altered = {f for f in Offer._fields if getattr(offer, f) != getattr(right, f)}
        if path == EXTENSION_KEY:
            assert offer.hold is None, value
        else:
            assert altered <= {HARMLESS.get(path)}, value
