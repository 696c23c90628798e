"""How long a queue pair repeats what the other end does not take."""

from __future__ import annotations

from typing import Annotated

import msgspec

_ACK_UNIT_NS = 4_096

# Hundredths of a millisecond by code, from the InfiniBand specification's table for RNR NAKs.
_RNR_CODES = (
    *(65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
    *(256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096, 6_144, 8_192),
    *(12_288, 16_384, 24_576, 32_768, 49_152),
)


_FiveBits = Annotated[int, msgspec.Meta(ge=0, le=31)]
_ThreeBits = Annotated[int, msgspec.Meta(ge=0, le=7)]


class Timers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of a queue pair, with verbs' codes for them.

    ``timeout`` and ``retry_count`` are about a peer that is silent; timeout 0 waits for ever.
    ``min_rnr_timer`` is what this end tells a peer that sends before a receive is posted, and
    ``rnr_retry`` how often this end sends again when told so; 7 is without limit.
    """

    timeout: _FiveBits = 14
    retry_count: _ThreeBits = 7
    min_rnr_timer: _FiveBits = 12
    rnr_retry: _ThreeBits = 7

    @property
    def ack_timeout_ns(self) -> int:
        """Time until the first repetition of what was not acknowledged."""
        return _ACK_UNIT_NS << self.timeout

    @property
    def retry_budget_ns(self) -> int | None:
        """How long an unanswered work request is repeated before it fails; None for ever."""
        return self.ack_timeout_ns * (self.retry_count + 1) if self.timeout else None

    @property
    def rnr_wait_ns(self) -> int:
        """How long a peer waits that was told that no receive is posted."""
        return _RNR_CODES[self.min_rnr_timer] * 10_000

    @property
    def rnr_retries(self) -> int | None:
        """How often a SEND is sent again before it fails; None without limit."""
        return None if self.rnr_retry == 7 else self.rnr_retry
