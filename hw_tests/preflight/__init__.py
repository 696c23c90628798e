"""What a machine has to have before a test on it means anything; fails closed.

``examine(Host())`` runs every check and never stops at the first that fails, so that all that is
missing is told at once. A check that cannot tell has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw_tests.preflight import gpus, network, software
from hw_tests.preflight.check import Check, Finding
from hw_tests.preflight.host import Host
from hw_tests.preflight.peers import check_peer

__all__ = ["CHECKS", "Check", "Finding", "Host", "examine"]

CHECKS: Sequence[Check] = (*software.CHECKS, *gpus.CHECKS, *network.CHECKS)
"""All that concern this machine alone, in the order in which they are worth repairing."""


def examine(host: Host, peers: Sequence[str] = ()) -> list[Finding]:
    """Run all checks on ``host``, and one for each of the ``peers`` (HOST:PORT)."""
    checks = [*CHECKS, *map(check_peer, peers)]
    return [check.examine(host) for check in checks]
