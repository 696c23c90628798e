"""How many drafts were accepted, as vLLM's scheduler counts them for each request that ends."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sim.probes import Probe
from sim.request_ids import logical_id


FIRST_STEPS = 12
"""More than an odd row behind a prompt can reach, even if every step brings one token only."""


class StepAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The n-th steps of all legs that had so many."""

    legs: int
    accepted: int

    @property
    def per_step(self) -> float:
        """Accepted drafts of an average one of these steps."""
        return self.accepted / self.legs


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts that a consumer's first step verifies in place of ones are counted as vLLM counts
    them: as drafts that were rejected."""

    steps: int
    """In which drafts were verified."""
    drafts: int
    accepted: int
    accepted_at: list[int]
    """By place in a step, the first draft's first."""
    first_steps: list[StepAcceptance]
    """By number of the step in its leg, as far as there were any, up to `FIRST_STEPS`. A consumer's
    first step computes the prompt's last token, and has placeholders verified."""

    @property
    def per_step(self) -> float:
        """Accepted drafts of an average step; 0 if there were none."""
        return self.accepted / self.steps if self.steps else 0.0

    @property
    def rate(self) -> float:
        """Of all drafts; 0 if there were none."""
        return self.accepted / self.drafts if self.drafts else 0.0


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
            accepted_at=[sum(count > place for count in accepted) for place in range(self._places)],
            first_steps=list(self._first_steps()),
        )

    def _first_steps(self) -> Iterator[StepAcceptance]:
        for number in range(FIRST_STEPS):
            accepted = [counts[number] for counts in self.by_leg.values() if number < len(counts)]
            if accepted:
                yield StepAcceptance(legs=len(accepted), accepted=sum(accepted))
