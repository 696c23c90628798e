"""The transfer protocol, searched exhaustively on small configurations (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from protocol_search import explore
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


@pytest.mark.requirement("R16", "R17", "S1", "S3", "S5")
def test_every_interleaving_with_crashes_and_any_one_fault_keeps_the_invariants() -> None:
    """No foreign byte is used, nothing is released under a reader, everything comes to rest.

    With a second request behind the first, and renewals at any time, before expiry and after.
    """
    worlds, resting = explore(Limits(ranks=1, max_faults=1, repeating_ranks=0))
    assert worlds > 100_000
    assert resting > 1_000


@pytest.mark.requirement("S5", "R16")
def test_a_load_that_is_read_once_more_keeps_the_invariants() -> None:
    """Whatever the first reads still do, and whether the producer lives, holds or has let go."""
    worlds, _ = explore(Limits(ranks=1))
    assert worlds > 10_000


@pytest.mark.soak
@pytest.mark.requirement("S5", "R16")
def test_the_same_with_any_one_fault() -> None:
    worlds, _ = explore(Limits(ranks=1, max_faults=1))
    assert worlds > 200_000


@pytest.mark.requirement("R17", "S3", "S6")
@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name.lower())
def test_one_loss_and_one_repetition_of_a_kind_keep_the_invariants(kind: Kind) -> None:
    """Each kind of message is lost once and repeated once, in every order with everything else."""
    explore(Limits(ranks=1, max_faults=2, kinds=frozenset({kind}), repeating_ranks=0))


@pytest.mark.soak
@pytest.mark.requirement("S5")
@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name.lower())
def test_the_same_with_loads_that_are_read_once_more(kind: Kind) -> None:
    explore(Limits(ranks=1, max_faults=2, kinds=frozenset({kind})))


@pytest.mark.requirement("R17")
def test_two_ranks_free_the_blocks_together_and_once() -> None:
    """One rank that is done does not free the blocks that another still reads."""
    limits = Limits(
        ranks=2, crashes=False, second_request=False, renewing_ranks=1, repeating_ranks=0
    )
    worlds, _ = explore(limits)
    assert worlds > 50_000


@pytest.mark.requirement("R17", "S3")
def test_the_last_of_two_legs_releases() -> None:
    """Whatever becomes of the other and of the engines, with any one release or renewal lost or
    repeated."""
    kinds = frozenset({Kind.RELEASE, Kind.RENEW})
    limits = Limits(ranks=1, max_faults=1, kinds=kinds, second_request=False, sibling=True)
    worlds, _ = explore(limits)
    assert worlds > 40_000


def test_a_release_by_the_first_of_two_legs_is_found() -> None:
    limits = Limits(ranks=1, crashes=False, sibling=True, defect=Defect.FIRST_LEG_RELEASES)
    with pytest.raises(Broken, match="another leg reads"):
        explore(limits)


@pytest.mark.soak
def test_one_of_two_ranks_reads_once_more_while_the_other_goes_on() -> None:
    """What the other has done, and what the producer does, is unharmed."""
    limits = Limits(ranks=2, crashes=False, second_request=False, renewing_ranks=1)
    worlds, _ = explore(limits)
    assert worlds > 100_000


@pytest.mark.soak
def test_two_ranks_with_crashes_and_a_second_request_keep_the_invariants() -> None:
    """Whatever one rank has done, the other reads and holds as safely as alone."""
    worlds, _ = explore(Limits(ranks=2, renewing_ranks=1, repeating_ranks=0))
    assert worlds > 400_000


def test_without_confirmation_a_foreign_byte_can_be_used() -> None:
    """What is lost with an upstream peer: the search finds the use after the hold has expired."""
    with pytest.raises(Broken, match="no longer held"):
        explore(Limits(ranks=1, crashes=False, defect=Defect.NO_VALIDATION))


@pytest.mark.requirement("S5", "S8")
def test_digests_make_up_for_success_that_is_reported_early() -> None:
    """Nothing is used that is not there, and no block is given up before all bytes have landed or
    never will."""
    worlds, _ = explore(Limits(ranks=1, early_success=True, verifies=True))
    assert worlds > 10_000


def test_without_digests_success_that_is_reported_early_is_believed() -> None:
    """Whatever the producer confirms."""
    with pytest.raises(Broken, match=r"no longer held|that it reads"):
        explore(Limits(ranks=1, crashes=False, early_success=True))


@pytest.mark.parametrize(
    ("defect", "what"),
    [
        (Defect.NO_VALIDATION, "no longer held"),
        (Defect.RENEWAL_COUNTED_EARLY, "freed blocks are held|twice"),
        (Defect.RENEWAL_OF_ANY_NUMBER, "a renewal of another hold is taken"),
        (Defect.STALE_RELEASE, "that another request reads|changes something"),
        (Defect.STALE_QUESTION, "no longer held"),
        (Defect.STALE_RENEWAL, "changes something"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Defect) else "",
)
def test_a_planted_defect_is_found(defect: Defect, what: str) -> None:
    """Nothing but the defect goes wrong: engines crash, leases expire, no message is lost."""
    with pytest.raises(Broken, match=what):
        explore(Limits(ranks=1, defect=defect))


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
        explore(Limits(ranks=1, max_faults=1, kinds=frozenset({Kind.RELEASE})))


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
