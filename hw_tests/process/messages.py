"""What a test and the processes of its engines say to each other, and nothing that loads vLLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

HOST = "127.0.0.1"

Device = Literal["shared", "cuda"]
"""Memory that other processes can map, or of a GPU (ROCm's torch calls it cuda, too)."""

Role = Literal["kv_producer", "kv_consumer"]

Blocks = list[list[int]]
"""Block ids of a request, by cache group."""

Digests = dict[str, dict[int, int]]
"""CRC-32 of a block, by layer and block id."""


@dataclass(frozen=True)
class SideOptions:
    """What one engine is.

    Args:
        model: a preset's name.
        role: producer or consumer.
        settings: of the connector, ports included.
        block_size: tokens; None for the preset's.
        max_tokens: of the longest request, beyond four blocks.
        num_blocks: of the cache.
        device: where the cache is.
        tp_size: ranks of the engine, of which this is one.
        rank: whose caches it has; its own process groups have no other.
    """

    model: str
    role: Role
    settings: Mapping[str, Any]
    block_size: int | None = None
    max_tokens: int = 400
    num_blocks: int = 64
    device: Device = "shared"
    tp_size: int = 1
    rank: int = 0


@dataclass(frozen=True)
class EngineOptions:
    """What a process is.

    Args:
        side: the engine.
        seed: of what its memory holds at first.
        stands_in: whether mori and the GPU are stood in for.
        protocol_version: of the connector; None for its own.
    """

    side: SideOptions
    seed: int
    stands_in: bool = True
    protocol_version: int | None = None


class Outcome(NamedTuple):
    """How a request ended."""

    reason: str
    num_tokens: int
    params: dict[str, Any] | None


@dataclass(frozen=True)
class Snapshot:
    """An engine between two steps.

    Args:
        outcomes: of requests that have ended.
        free_blocks: of the cache.
        forwards: passes that each request took part in.
        counters: of the rank.
        reads_at_gate: reads that are kept under way.
    """

    outcomes: dict[str, Outcome]
    free_blocks: int
    forwards: Counter[str]
    counters: Counter[str]
    reads_at_gate: int
