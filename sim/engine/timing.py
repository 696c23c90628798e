"""How long the simulated GPU and the host take: plain, documented, and not a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from sim.engine.work import Span
from sim.units import US

Microseconds = Annotated[int, msgspec.Meta(ge=0)]
FineMicroseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class StepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations of one engine step, in microseconds.

    The defaults have the order of magnitude of an 8B model on one accelerator; they give a run
    its rhythm and must not be read as performance figures.
    """

    host_us: Microseconds = 300
    base_us: Microseconds = 5_000
    prefill_us_per_token: FineMicroseconds = 20.0
    decode_us_per_request: FineMicroseconds = 40.0
    zero_us_per_block: FineMicroseconds = 0.5
    draft_us: Microseconds = 400
    """One pass of a drafter."""

    def forward_ns(self, spans: Sequence[Span]) -> int:
        """Of a pass over ``spans``; one of a single token is a request that decodes."""
        sizes = [end - begin for begin, end in spans]
        decode_requests = sizes.count(1)
        prefill_tokens = sum(sizes) - decode_requests
        variable = (
            prefill_tokens * self.prefill_us_per_token
            + decode_requests * self.decode_us_per_request
        )
        return self.base_us * US + round(variable * US)

    def zero_ns(self, blocks: int) -> int:
        return max(US, round(blocks * self.zero_us_per_block * US))

    def draft_ns(self, passes: int) -> int:
        return passes * self.draft_us * US

    def scaled(self, factor: float) -> StepTimes:
        """Everything takes ``factor`` as long."""
        values = msgspec.structs.asdict(self)
        longer = {
            name: round(value * factor) if isinstance(value, int) else value * factor
            for name, value in values.items()
        }
        return msgspec.structs.replace(self, **longer)

    @property
    def host_ns(self) -> int:
        return self.host_us * US
