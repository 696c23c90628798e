"""How many parameters a model has, and how many of them a token uses."""

from __future__ import annotations

from typing import Annotated

import msgspec

Parameters = Annotated[float, msgspec.Meta(gt=0, le=1e15)]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of a model, over all its ranks.

    Args:
        parameters: all of them.
        active_parameters: that one token is multiplied with; all when not given.
        experts: that each expert layer routes to; 0 without.
        experts_per_token: of those, how many a token is routed to.
        bytes_per_parameter: as they lie in memory.
    """

    parameters: Parameters
    active_parameters: Parameters | None = None
    experts: Annotated[int, msgspec.Meta(ge=0)] = 0
    experts_per_token: Annotated[int, msgspec.Meta(ge=0)] = 0
    bytes_per_parameter: Annotated[float, msgspec.Meta(gt=0, le=8)] = 2.0

    def __post_init__(self) -> None:
        """Refuse numbers that contradict each other."""
        if self.active > self.parameters:
            raise ValueError(
                f"active_parameters {self.active:g} is more than parameters {self.parameters:g}"
            )
        if bool(self.experts) != (self.active < self.parameters):
            raise ValueError(
                "experts and active_parameters belong together: a model without experts uses all "
                "of its parameters for each token"
            )
        if self.experts and not 0 < self.experts_per_token < self.experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, expected 1 to {self.experts - 1}, "
                "fewer than experts"
            )

    @property
    def active(self) -> float:
        """Parameters that one token is multiplied with."""
        return self.parameters if self.active_parameters is None else self.active_parameters

    def touched(self, tokens: int) -> float:
        """Parameters that a pass of ``tokens`` reads: an expert's only if a token goes there.

        Tokens are taken to choose experts independently of each other, all equally often.
        """
        if not self.experts:
            return self.parameters
        share = self.experts_per_token / self.experts
        in_experts = (self.parameters - self.active) / (1 - share)
        missed = (1 - share) ** tokens
        return self.parameters - in_experts * missed
