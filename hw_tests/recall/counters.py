"""What vLLM counts about drafts, and this project's connector about loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Counters:
    """Sums over engines and labels; None of what an engine does not show.

    Args:
        drafts: steps in which there were drafts.
        draft_tokens, accepted_tokens: of all those steps.
        loads, failed_loads: by ``HybridReadConnector``, one a rank and request; those that failed
            are not among ``loads``.
        verified_loads: of ``loads``, those whose every byte was compared.
    """

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    loads: float | None = None
    failed_loads: float | None = None
    verified_loads: float | None = None

    def __sub__(self, other: Counters) -> Counters:
        ours, theirs = asdict(self), asdict(other)
        return Counters(**{
            name: None if value is None else value - (theirs[name] or 0)
            for name, value in ours.items()
        })  # fmt: skip

    @property
    def acceptance(self) -> float | None:
        """Accepted drafts of all; None without drafts."""
        if self.accepted_tokens is None or not self.draft_tokens:
            return None
        return self.accepted_tokens / self.draft_tokens


def since(before: Counters | str, now: Counters | str) -> Counters | str:
    """What was counted meanwhile, or why that is not known."""
    if isinstance(before, str) or isinstance(now, str):
        return before if isinstance(before, str) else now
    counted = now - before
    if any(value is not None and value < 0 for value in asdict(counted).values()):
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


async def engines_behind(session: aiohttp.ClientSession, url: str) -> dict[str, list[str]]:
    """By kind, prefill and decode, those behind this project's router at ``url``, which names them
    in its health; any other server is its own engine, which decodes."""
    try:
        async with session.get(f"{url}/health") as response:
            health = await response.json()
            return {kind: list(health[kind]) for kind in ("prefill", "decode")}
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError):
        return {"decode": [url]}


async def read_counters(session: aiohttp.ClientSession, engines: Sequence[str]) -> Counters:
    """What ``engines`` have counted since they started.

    Raises:
        ValueError: one of them shows no metrics, or what cannot be read as such.
    """
    shown = [await read_metrics(session, url) for url in engines]
    return Counters(**{
        name: sum(each[sample] for each in shown) if all(sample in each for each in shown) else None
        for sample, name in _SAMPLES.items()
    })  # fmt: skip


async def read_metrics(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """What the engine at ``url`` shows, summed over labels, by name.

    Raises:
        ValueError: it shows no metrics of vLLM, or what cannot be read as such.
    """
    try:
        async with session.get(f"{url}/metrics") as response:
            response.raise_for_status()
            text = await response.text()
    except (aiohttp.ClientError, OSError, ValueError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise ValueError(f"{url}/metrics cannot be read ({cause})") from None
    totals: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0) + sample.value
    except (ValueError, IndexError) as error:  # the latter of a label without a name
        raise ValueError(f"{url}/metrics is not Prometheus' text ({error})") from None
    if not any(name.startswith("vllm:") for name in totals):
        raise ValueError(f"{url}/metrics has nothing of vLLM")
    return totals
