"""How large the KV cache of an engine is when a scenario does not say."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sim.errors import UsageError
from sim.model.arena import DEVICE_BYTES
from sim.workload import RequestSpec

MEMORY_LIMIT_BYTES = 2 * 1024**3
_NULL_BLOCK = 1
_LOOKAHEAD_BLOCK = 1


def longest_request(requests: Sequence[RequestSpec]) -> int:
    """Tokens of the longest request, its output included."""
    return max(request.prompt_tokens + request.max_tokens for request in requests)


def default_num_blocks(
    requests: Sequence[RequestSpec],
    block_size: int,
    max_num_seqs: int,
    *,
    bytes_per_token: Fraction | int = 0,
    num_ranks: int = 1,
    num_groups: int = 1,
    num_speculative_tokens: int = 0,
) -> int:
    """KV cache blocks per rank: the largest request twice, and ``max_num_seqs`` average ones.

    With that a pool is never the bottleneck by accident; pressure on it is something a scenario
    asks for. Every one of the ``num_groups`` KV cache groups takes blocks of its own from the
    pool, and a recurrent one a further block for each draft. All ``num_ranks`` caches of a run
    together, at ``bytes_per_token`` each, stay below 2 GiB, if need be at the cost of concurrency.

    Raises:
        UsageError: the largest request alone would need more than that.
    """
    spare = _LOOKAHEAD_BLOCK + num_speculative_tokens
    sizes = [num_groups * (_blocks(request, block_size) + spare) for request in requests]
    concurrent = min(len(sizes), max_num_seqs)
    wanted = _NULL_BLOCK + 2 * max(sizes) + -(-concurrent * sum(sizes) // len(sizes))
    if not bytes_per_token:
        return wanted
    # ``bytes_per_token`` counts all groups, and a block holds the layers of one.
    block_bytes = bytes_per_token * block_size / num_groups
    affordable = int(MEMORY_LIMIT_BYTES / (block_bytes * num_ranks))
    if affordable < _NULL_BLOCK + max(sizes):
        raise UsageError(
            f"the longest request ({longest_request(requests)} tokens) needs more than 2 GiB of "
            f"KV cache on {num_ranks} ranks together; set geometry: reduced, shorten the requests "
            "(length_scale, max_prompt_tokens), or set engine.num_blocks"
        )
    return min(wanted, affordable)


def require_usable_block(num_blocks: int) -> None:
    """UsageError when a cache of ``num_blocks`` has no block that a request could get."""
    if num_blocks <= _NULL_BLOCK:
        raise UsageError(
            f"engine.num_blocks: is {num_blocks}, expected at least {_NULL_BLOCK + 1}: vLLM keeps "
            "the first block to itself"
        )


def check_memory(
    num_blocks: int, block_size: int, bytes_per_token: Fraction, num_groups: int
) -> None:
    """UsageError when a rank's cache of ``num_blocks`` is larger than a device can be, or has no
    block that a request could get."""
    require_usable_block(num_blocks)
    limit = most_blocks(block_size, bytes_per_token, num_groups)
    if num_blocks > limit:
        block_bytes = int(bytes_per_token * block_size / num_groups)
        raise UsageError(
            f"engine.num_blocks: is {num_blocks}, expected at most {limit}: a rank has "
            f"{DEVICE_BYTES >> 30} GiB of KV cache, and a block takes {block_bytes} bytes"
        )


def most_blocks(block_size: int, bytes_per_token: Fraction, num_groups: int) -> int:
    """How many blocks a rank's device has room for."""
    return int(DEVICE_BYTES * num_groups / (bytes_per_token * block_size))


def _blocks(request: RequestSpec, block_size: int) -> int:
    tokens = request.prompt_tokens + request.max_tokens
    return -(-tokens // block_size)
