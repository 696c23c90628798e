"""The searches of the transfer protocol that are too large for every test run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from protocol_search import check_search
from protocol_world import Kind, Limits

pytestmark = pytest.mark.soak

ONE = Limits(repeating_ranks=0)
TWO = Limits(ranks=2, renewing_ranks=1)
OF_BOTH_LEGS = frozenset({Kind.RELEASE, Kind.RENEW})
