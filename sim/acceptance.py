"""How many drafts were accepted, as vLLM's scheduler counts them for each request that ends."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sim.probes import Probe
from sim.request_ids import logical_id

FIRST_STEPS = 12
"""More than what one odd row in a drafter's cache spoils, even if every step brings one token."""


class StepAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The n-th steps of all legs that had so many."""

    legs: int
    accepted: int
    accepted_per_step: float


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts that a consumer's first step verifies in place of ones are counted as vLLM counts
    them: as drafts that were rejected."""

    steps: int
    """In which drafts were verified."""
    drafts: int
    accepted: int
    accepted_per_step: float
    accepted_at: list[int]
    """By place in a step, the first draft's first."""
    first_steps: list[StepAcceptance]
    """The first steps of the legs, one after the other, `FIRST_STEPS` at most. A consumer's first
    one computes the prompt's last token, and has no drafts yet but placeholders."""

    @property
    def rate(self) -> float:
        """Of all drafts; 0 if there were none."""
        return _ratio(self.accepted, self.drafts)


class AcceptanceCount(Probe):
    """Collects what requests bring along when they end, but for ``excluded`` ones."""

    def __init__(self, num_speculative_tokens: int, excluded: str) -> None:
        self._places = num_speculative_tokens
        self._excluded = excluded
        self._drafts = 0
        self.by_leg: dict[str, list[int]] = {}
        """For each leg, how many drafts each of its steps accepted."""

    def drafts_verified(self, request_id: str, accepted: list[int], drafts: int) -> None:
        if logical_id(request_id) != self._excluded:
            self.by_leg[request_id] = accepted
            self._drafts += drafts

    def total(self) -> Acceptance:
        """Of all legs together."""
        accepted = [count for counts in self.by_leg.values() for count in counts]
        return Acceptance(
            steps=len(accepted),
            drafts=self._drafts,
            accepted=sum(accepted),
            accepted_per_step=_ratio(sum(accepted), len(accepted)),
            accepted_at=[sum(count > place for count in accepted) for place in range(self._places)],
            first_steps=list(self._first_steps()),
        )

    def _first_steps(self) -> Iterator[StepAcceptance]:
        for number in range(FIRST_STEPS):
            accepted = [counts[number] for counts in self.by_leg.values() if number < len(counts)]
            if accepted:
                yield StepAcceptance(
                    legs=len(accepted),
                    accepted=sum(accepted),
                    accepted_per_step=_ratio(sum(accepted), len(accepted)),
                )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
