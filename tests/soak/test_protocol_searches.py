"""The searches of the transfer protocol that are too large for every test run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from protocol_joint import check_joint_search
from protocol_search import check_search, explore
from protocol_world import Kind, Limits

pytestmark = pytest.mark.soak

ONE = Limits(repeating_ranks=0)
TWO = Limits(ranks=2, renewing_ranks=1)
UNDISTURBED = {"crashes": False, "second_request": False}


@pytest.mark.requirement("R16", "R17", "S1", "S3", "S5")
@pytest.mark.parametrize(
    ("limits", "worlds"),
    [
        pytest.param(replace(ONE, max_faults=1), 106_318, id="any message astray"),
        pytest.param(Limits(max_faults=1), 221_592, id="read once more"),
        pytest.param(replace(TWO, **UNDISTURBED, repeating_ranks=0), 76_567, id="two ranks"),
        pytest.param(replace(TWO, **UNDISTURBED), 162_311, id="one of two ranks reads once more"),
        pytest.param(
            Limits(
                max_faults=1,
                kinds=frozenset({Kind.RELEASE, Kind.RENEW}),
                second_request=False,
                sibling=True,
            ),
            90_039,
            id="two legs",
        ),
        pytest.param(
            Limits(early_success=True, verifies=True), 51_504, id="success before the bytes"
        ),
    ],
)
def test_every_interleaving_keeps_the_invariants(limits: Limits, worlds: int) -> None:
    """As the smaller searches do: one after the other, with everything that they leave out."""
    check_search(limits, worlds)


def test_two_ranks_with_crashes_and_a_second_request_keep_the_invariants() -> None:
    """Whatever one rank has done, the other reads and holds as safely as alone."""
    worlds, _ = explore(replace(TWO, repeating_ranks=0))
    assert worlds > 400_000


OF_ONE_KIND = {
    Kind.OFFER: (34_471, 70_945),
    Kind.HELLO: (34_538, 75_760),
    Kind.WELCOME: (33_518, 73_436),
    Kind.ASK: (31_708, 64_100),
    Kind.HELD: (23_244, 47_172),
    Kind.GONE: (20_444, 41_572),
    Kind.RELEASE: (25_386, 48_448),
    Kind.RENEW: (47_450, 97_882),
}
"""Worlds without and with loads that are read once more."""


@pytest.mark.requirement("R17", "S3", "S5", "S6")
@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name.lower())
def test_one_loss_and_one_repetition_of_a_kind_keep_the_invariants(kind: Kind) -> None:
    """Each kind of message is lost once and repeated once, in every order with everything else."""
    limits = Limits(max_faults=2, kinds=frozenset({kind}))
    plain, repeated = OF_ONE_KIND[kind]
    check_search(replace(limits, repeating_ranks=0), plain)
    check_search(limits, repeated)


@pytest.mark.requirement("R17", "S1", "S2", "S3", "S5", "S6")
def test_everything_at_once_keeps_the_invariants() -> None:
    """Two ranks and two requests, either engine's crash, leases that expire, and messages that are
    lost and repeated as often as it may be, in one search."""
    check_joint_search(Limits(ranks=2, repeating_ranks=0), 60_209)
