"""Decode legs that share a hold: who renews it, and who releases it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.parallel_sampling import ParentRequest

from connector.core.legs import LegCount, is_sample
from connector.core.offer import Address, HoldId
from connector.metadata import KeepOrder, ReleaseOrder, Share
from connector.releaser import Releaser
from sim.request_ids import leg_of, sample_id

ADDRESS = Address("10.0.0.1", 6301, 61005, 1)
HELD = Share("tx-1", ADDRESS, HoldId("now", 1))
OTHER = Share("tx-1", ADDRESS, HoldId("now", 2))
UPSTREAM = Share("tx-1", ADDRESS, None)


class Wire:
    """Notes releases, and which holds are renewed."""

    def __init__(self) -> None:
        self.sent: list[Share] = []
        self.renewed: dict[HoldId, None] = {}

    def send(self, share: Share) -> None:
        self.sent.append(share)

    def keep(self, order: KeepOrder, now: float) -> None:
        if order.share.hold is not None:
            self.renewed[order.share.hold] = None

    def forget(self, address: Address, hold: HoldId | None) -> None:
        if hold is not None:
            del self.renewed[hold]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("connector.releaser.time.monotonic", lambda: now[0])
    return now


def rank(gap_s: float = 0.5) -> tuple[Any, Wire]:
    wire: Any = Wire()
    return Releaser(wire, wire, LegCount(gap_s)), wire


def keep(leg: str, share: Share = HELD) -> KeepOrder:
    return KeepOrder(leg, share, 60.0, is_sample(leg))


@pytest.mark.requirement("R17", "S2")
@pytest.mark.parametrize("share", [HELD, UPSTREAM])
@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")])
def test_a_hold_is_renewed_and_kept_until_its_last_leg_is_done(
    share: Share, order: tuple[str, ...], clock: list[float]
) -> None:
    """Whichever that is, and whether or not the producer can be asked."""
    releaser, wire = rank()
    for leg in "abc":
        releaser.keep(keep(leg, share), 0.0)
    for leg in order[:-1]:
        releaser.release(ReleaseOrder(leg, share))
    assert (wire.sent, list(wire.renewed)) == ([], [share.hold] if share.hold else [])
    releaser.release(ReleaseOrder(order[-1], share))
    assert (wire.sent, list(wire.renewed)) == ([share], [])
    assert len(releaser._legs) == 0


def test_a_leg_is_counted_once(clock: list[float]) -> None:
    """Though it were told of twice, or released twice."""
    releaser, wire = rank()
    for leg in ("a", "a", "b"):
        releaser.keep(keep(leg), 0.0)
    releaser.release(ReleaseOrder("a", HELD))
    releaser.release(ReleaseOrder("a", HELD))
    assert wire.sent == []
    releaser.release(ReleaseOrder("b", HELD))
    assert wire.sent == [HELD]


def test_holds_of_one_transfer_are_kept_apart(clock: list[float]) -> None:
    """A prefill that was tried again has another hold than the first."""
    releaser, wire = rank()
    releaser.keep(keep("a", HELD), 0.0)
    releaser.keep(keep("b", OTHER), 0.0)
    releaser.release(ReleaseOrder("a", HELD))
    assert wire.sent == [HELD]
    assert list(wire.renewed) == [OTHER.hold]


@pytest.mark.requirement("R17")
def test_the_hold_of_a_sample_waits_for_others_that_are_still_on_their_way(
    clock: list[float],
) -> None:
    """Half a second after the latest came or was done; nobody says how many there are."""
    releaser, wire = rank()
    releaser.keep(keep("0_x"), 0.0)
    clock[0] = 0.1
    releaser.release(ReleaseOrder("0_x", HELD))
    assert releaser.seconds_to_next(0.1) == pytest.approx(0.5)
    releaser.keep(keep("1_x"), 0.2)
    assert releaser.seconds_to_next(0.2) is None
    clock[0] = 0.3
    releaser.release(ReleaseOrder("1_x", HELD))
    releaser.go_on(0.79)
    assert wire.sent == []
    releaser.go_on(0.8)
    assert wire.sent == [HELD]
    assert (releaser.seconds_to_next(0.8), len(releaser._legs)) == (None, 0)


def test_after_a_long_load_the_hold_of_a_sample_waits_as_well(clock: list[float]) -> None:
    """Others could not be told of while the step waited for that load."""
    releaser, wire = rank()
    releaser.keep(keep("0_x"), 0.0)
    clock[0] = 0.6
    releaser.release(ReleaseOrder("0_x", HELD))
    assert wire.sent == []
    releaser.keep(keep("1_x"), 0.61)
    releaser.go_on(2.0)
    assert wire.sent == []
    clock[0] = 2.0
    releaser.release(ReleaseOrder("1_x", HELD))
    releaser.go_on(2.5)
    assert wire.sent == [HELD]


def test_samples_that_may_be_elsewhere_leave_the_hold_to_its_lease(clock: list[float]) -> None:
    """On data-parallel ranks that vLLM spreads them over; a single leg releases there as well."""
    releaser, wire = rank(math.inf)
    releaser.keep(keep("0_x"), 0.0)
    releaser.release(ReleaseOrder("0_x", HELD))
    releaser.go_on(1e9)
    assert (wire.sent, list(wire.renewed), len(releaser._legs)) == ([], [], 0)
    releaser.keep(keep("y", OTHER), 0.0)
    releaser.release(ReleaseOrder("y", OTHER))
    assert wire.sent == [OTHER]


@pytest.mark.parametrize(
    ("request_id", "expected"),
    [("0_cmpl-7-d1", True), ("12_x", True), ("cmpl-0_1", False), ("_x", False), ("7-x", False)],
)
def test_samples_are_known_by_their_ids(request_id: str, expected: bool) -> None:
    assert is_sample(request_id) is expected


def test_ids_of_samples_are_those_that_vllm_makes() -> None:
    """The front end's own class says so."""

    class Asked:
        request_id = external_req_id = "n-req-d0"
        params = SamplingParams(n=2, max_tokens=1)

    name, params = ParentRequest(Asked()).get_child_info(1)  # type: ignore[arg-type]
    assert is_sample(name)
    assert params.n == 1, "vLLM tells of the number of samples: count them"
    assert name == sample_id("req-d0", 1)
    assert leg_of(name) == "req-d0"
