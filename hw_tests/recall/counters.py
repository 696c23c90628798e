"""What vLLM counts about drafts, and this project's connector about loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import aiohttp
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Counters:
    """Sums over engines and labels; those that no engine has stay 0.

    Args:
        drafts: steps in which there were drafts.
        draft_tokens, accepted_tokens: of all those steps.
        loads, failed_loads: by ``HybridReadConnector``, one a rank and request; those that failed
            are not among ``loads``.
        verified_loads: of ``loads``, those whose every byte was compared.
    """

    drafts: float = 0
    draft_tokens: float = 0
    accepted_tokens: float = 0
    loads: float = 0
    failed_loads: float = 0
    verified_loads: float = 0

    def __sub__(self, other: Counters) -> Counters:
        names = [field.name for field in fields(self)]
        return Counters(**{name: getattr(self, name) - getattr(other, name) for name in names})

    @property
    def acceptance(self) -> float | None:
        """Accepted drafts of all; None without drafts."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens > 0 else None


def since(before: Counters | str, now: Counters | str) -> Counters | str:
    """What was counted meanwhile, or why that is not known."""
    if isinstance(before, str) or isinstance(now, str):
        return before if isinstance(before, str) else now
    counted = now - before
    if min(asdict(counted).values()) < 0:
        return "counters have fallen, as of an engine that was started again meanwhile"
    return counted


_SAMPLES = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "vllm:hybrid_read_loads_total": "loads",
    "vllm:hybrid_read_failed_loads_total": "failed_loads",
    "vllm:hybrid_read_verified_loads_total": "verified_loads",
}


async def decode_engines(session: aiohttp.ClientSession, url: str) -> list[str]:
    """The engines behind this project's router at ``url``, which names them in its health; any
    other server is its own engine."""
    try:
        async with session.get(f"{url}/health") as response:
            health = await response.json()
            return list(health["decode"])
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError):
        return [url]


async def read_counters(session: aiohttp.ClientSession, engines: Sequence[str]) -> Counters:
    """What ``engines`` have counted since they started.

    Raises:
        ValueError: one of them shows no metrics, or what cannot be read as such.
    """
    totals: dict[str, float] = {}
    for url in engines:
        try:
            async with session.get(f"{url}/metrics") as response:
                response.raise_for_status()
                text = await response.text()
        except (aiohttp.ClientError, OSError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise ValueError(f"{url}/metrics cannot be read ({cause})") from None
        try:
            samples = [each for of in text_string_to_metric_families(text) for each in of.samples]
        except (ValueError, IndexError) as error:  # the latter of a label without a name
            raise ValueError(f"{url}/metrics is not Prometheus' text ({error})") from None
        for sample in samples:
            if (name := _SAMPLES.get(sample.name)) is not None:
                totals[name] = totals.get(name, 0) + sample.value
    return Counters(**totals)
