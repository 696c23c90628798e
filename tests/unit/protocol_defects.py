"""Defects that are planted into the model of the protocol, and what a search says of each."""

from __future__ import annotations

import pytest
from protocol_world import Defect

each_planted_defect = pytest.mark.parametrize(
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
