"""The transfer protocol, searched exhaustively on small configurations (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from protocol_defects import each_planted_defect
from protocol_search import check_search, explore
from protocol_world import Broken, Defect, Kind, Limits

from connector.core.hold import (
    LEASE,
    RANK_HOLD,
    HoldAction,
    HoldEvent,
    HoldState,
    LeaseAction,
    LeaseEvent,
    LeaseState,
)
from connector.core.load import LOAD, LoadAction, LoadEvent, LoadState
from connector.core.request import REQUEST, RequestEvent, RequestState
from connector.core.tables import Move, Table

ONE = Limits(repeating_ranks=0)
RELEASE = frozenset({Kind.RELEASE})


@pytest.mark.requirement("R16", "R17", "S1", "S2", "S3", "S5", "S6")
@pytest.mark.parametrize(
    ("limits", "worlds"),
    [
        pytest.param(
            replace(ONE, max_faults=1, second_request=False), 44_910, id="any message astray"
        ),
        pytest.param(
            replace(ONE, max_faults=2, kinds=RELEASE, second_request=False),
            12_447,
            id="a release lost and one repeated",
        ),
        pytest.param(
            replace(ONE, max_faults=1, kinds=RELEASE), 20_428, id="another request behind the first"
        ),
        pytest.param(Limits(), 23_632, id="read once more"),
        pytest.param(
            replace(ONE, ranks=2, crashes=False, second_request=False, renewing_ranks=0),
            24_781,
            id="two ranks",
        ),
        pytest.param(
            replace(ONE, max_faults=1, kinds=RELEASE, second_request=False, sibling=True),
            20_020,
            id="two legs",
        ),
        pytest.param(
            Limits(second_request=False, early_success=True, verifies=True),
            18_691,
            id="success before the bytes",
        ),
    ],
)
def test_every_interleaving_keeps_the_invariants(limits: Limits, worlds: int) -> None:
    """No foreign byte is used, nothing is released under a reader, no block is given up under a
    read, everything comes to rest. Larger searches of each kind are among the soak runs."""
    check_search(limits, worlds)


def test_a_release_by_the_first_of_two_legs_is_found() -> None:
    limits = Limits(crashes=False, sibling=True, defect=Defect.FIRST_LEG_RELEASES)
    with pytest.raises(Broken, match="another leg reads"):
        explore(limits)


def test_without_confirmation_a_foreign_byte_can_be_used() -> None:
    """What is lost with an upstream peer: the search finds the use after the hold has expired."""
    with pytest.raises(Broken, match="no longer held"):
        explore(Limits(crashes=False, defect=Defect.NO_VALIDATION))


def test_without_digests_success_that_is_reported_early_is_believed() -> None:
    """Whatever the producer confirms."""
    with pytest.raises(Broken, match=r"no longer held|that it reads"):
        explore(Limits(crashes=False, early_success=True))


@each_planted_defect
def test_a_planted_defect_is_found(defect: Defect, what: str) -> None:
    """Nothing but the defect goes wrong: engines crash, leases expire, no message is lost."""
    with pytest.raises(Broken, match=what):
        explore(Limits(defect=defect))


@contextmanager
def _changed(table: Table[Any, Any, Any], key: Any, move: Move[Any, Any]) -> Iterator[None]:
    moves = dict(table.moves)
    original, table.moves = table.moves, {**moves, key: move}
    try:
        yield
    finally:
        table.moves = original


_FAILED = Move(LoadState.FAILED, (LoadAction.RELEASE, LoadAction.REPORT_FAILED))
_LOADED = Move(LoadState.LOADED, (LoadAction.RELEASE, LoadAction.REPORT_LOADED))


@pytest.mark.parametrize(
    ("table", "key", "move", "what"),
    [
        (LOAD, (LoadState.READING, LoadEvent.TIMED_OUT), _FAILED, "that it reads"),
        (
            LOAD,
            (LoadState.READING, LoadEvent.TIMED_OUT),
            Move(LoadState.FAILED, (LoadAction.REPORT_FAILED,)),
            "under a read in flight",
        ),
        (
            LOAD,
            (LoadState.READING, LoadEvent.PATH_LOST),
            Move(LoadState.CONNECTING, (LoadAction.START_OVER,)),
            "that it reads|under a read in flight",
        ),
        (LOAD, (LoadState.REPAIRING, LoadEvent.TIMED_OUT), _FAILED, "that it reads"),
        (LOAD, (LoadState.CONFIRMING, LoadEvent.GONE), _LOADED, "no longer held"),
        (LOAD, (LoadState.CONFIRMING, LoadEvent.TIMED_OUT), _LOADED, "no longer held"),
        (
            RANK_HOLD,
            (HoldState.GONE, HoldEvent.ASKED),
            Move(HoldState.GONE, (HoldAction.SAY_HELD,)),
            "says that freed blocks are held",
        ),
        (
            RANK_HOLD,
            (HoldState.HELD, HoldEvent.REVOKED),
            Move(HoldState.HELD, (HoldAction.REPORT_SENT,)),
            "twice|freed blocks are held",
        ),
        (
            RANK_HOLD,
            (HoldState.GONE, HoldEvent.RELEASED),
            Move(HoldState.GONE, (HoldAction.REPORT_SENT,)),
            "twice",
        ),
        (
            LEASE,
            (LeaseState.HOLDING, LeaseEvent.EXPIRED),
            Move(LeaseState.FREED, (LeaseAction.FREE,)),
            "held|rest|another request reads",
        ),
        (
            RANK_HOLD,
            (HoldState.GONE, HoldEvent.RENEWED),
            Move(HoldState.HELD),
            "freed blocks are held|changes something",
        ),
        (
            LEASE,
            (LeaseState.HOLDING, LeaseEvent.RENEWED),
            Move(LeaseState.HOLDING),
            "that was taken gives no time",
        ),
        (
            LEASE,
            (LeaseState.HOLDING, LeaseEvent.EXPIRED),
            Move(LeaseState.REVOKING),
            "never comes to rest",
        ),
        (
            REQUEST,
            (RequestState.LOADING, RequestEvent.ENDED),
            Move(RequestState.OVER),
            "under a read in flight",
        ),
    ],
)
def test_a_wrong_move_is_found(
    table: Table[Any, Any, Any], key: Any, move: Move[Any, Any], what: str
) -> None:
    """The search can fail: it finds each of these defects when it is planted."""
    with _changed(table, key, move), pytest.raises((Broken, AssertionError), match=what):
        explore(Limits(second_request=False))


def test_every_state_is_final_or_has_a_way_on() -> None:
    """No table has a state that nothing leads out of, except the final ones."""
    for table in (LOAD, RANK_HOLD, LEASE, REQUEST):
        states = {state for state, _ in table.moves}
        for state in states - table.final:
            assert any(
                move.state is not state
                for (before, _), move in table.moves.items()
                if before is state
            ), f"{table.name}: {state.name}"
