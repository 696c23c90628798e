"""How large the pools of blocks of a run are, which a scenario may say or leave open."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sim.model.presets import get_preset
from sim.scenario import Scenario, check_memory, default_num_blocks, longest_request
from sim.workload import RequestSpec

_SHORTEST_LENGTH = 256


def pool_of(scenario: Scenario, requests: Sequence[RequestSpec]) -> tuple[int, int]:
    """Blocks of each rank, and the longest request in tokens that they have to hold.

    Raises:
        UsageError: they do not fit into the memory that there is.
    """
    options = msgspec.structs.replace(scenario.engine, speculation=scenario.speculation)
    preset = get_preset(scenario.model)
    drafts = options.num_speculative_tokens
    method = options.speculation.method if options.speculation else None
    # Room for drafts behind the last token, or the last steps would have fewer than others.
    longest = max(longest_request(requests), _SHORTEST_LENGTH) + 2 * drafts
    block_size = preset.tokens_per_block(options.tp_size, scenario.geometry, drafts)
    bytes_per_token = preset.bytes_per_token(options.tp_size, scenario.geometry, method)
    blocks_for_longest = -(-longest // block_size)
    # vLLM refuses a pool that cannot hold one request of the maximum length.
    num_blocks = options.num_blocks or max(
        (blocks_for_longest + 1 + drafts) * preset.num_groups + 1,
        default_num_blocks(
            requests,
            block_size,
            options.max_num_seqs,
            bytes_per_token=bytes_per_token,
            num_ranks=scenario.num_ranks,
            num_groups=preset.num_groups,
            num_speculative_tokens=drafts,
        ),
    )
    check_memory(num_blocks, block_size, bytes_per_token, preset.num_groups)
    return num_blocks, blocks_for_longest * block_size
