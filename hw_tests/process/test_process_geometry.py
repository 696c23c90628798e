"""Every model's caches at every size of tensor parallelism, read from one process into another.

Each rank is a pair of processes, with the real halves of the connector and vLLM's scheduler, which
also decides what the consumer need not read. Dimensions are reduced, layouts are vLLM's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from hw_tests.process.checks import (
    Written,
    check_loaded,
    check_served,
    check_untouched,
    written_by,
)
from hw_tests.process.messages import Digests
from hw_tests.process.pair import EngineProcess, Engines, decode, prefill

_MODELS = [
    "deepseek-mla",
    "gemma-swa",
    "glm-flash",
    "glm-flash-nospec",
    "glm-kpool16-nospec",
    "kimi-linear",
    "llama",
    "qwen-hybrid",
]
"""All presets, whose module loads vLLM, which the machine of the tests need not have."""
_QUICK = [("glm-flash", 1)]
_ALL = [(name, tp_size) for name in _MODELS for tp_size in (1, 2, 4, 8)]


class Rank:
    """One rank of a producer and of a consumer.

    Args:
        producer, consumer: its processes.
    """

    def __init__(self, producer: EngineProcess, consumer: EngineProcess) -> None:
        self._producer, self._consumer = producer, consumer
        self._held: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        """What the consumer has read of the prompt, by layer and position."""

    def load(self, prompt: list[int] | None, num_tokens: int = 0) -> tuple[Written, Counter[str]]:
        """Hand a prompt over and compare every byte of both sides.

        Returns what the producer had written, and how many blocks of layers were ``read``, how
        many ``kept``, and how many were a ``state``.
        """
        before = self._consumer.call("digests")
        beside = [side.call("padding") for side in (self._producer, self._consumer)]
        prefilled = prefill(self._producer, num_tokens, prompt)
        written = written_by(self._producer, prefilled)
        offered_from = self._producer.call("digests")
        request_id = decode(self._consumer, prefilled)
        check_served(self._consumer, request_id)
        if not self._held:
            check_loaded(self._producer, prefilled, self._consumer, request_id)
        own = self._consumer.call("blocks", request_id=request_id)
        owned = self._consumer.call("owned", request_id=request_id)
        check_untouched(before, self._consumer.call("digests"), [owned])
        assert self._producer.call("digests") == offered_from, "the producer's bytes have changed"
        assert [side.call("padding") for side in (self._producer, self._consumer)] == beside
        counts = self._account(written, own, self._consumer.call("found", request_id=request_id))
        for side in (self._consumer, self._producer):
            side.wait_until_idle()
        return written, counts

    def _account(
        self, written: Written, own: Sequence[Sequence[int]], found: Digests
    ) -> Counter[str]:
        """Each offered block is on the other side, or what was read of it before is."""
        counts: Counter[str] = Counter()
        offered = {block for ids in written.prefilled.params["remote_block_ids"] for block in ids}
        for theirs, ours in zip(written.blocks, own, strict=True):
            is_state = not theirs[0]  # one for the whole prompt, wherever either side has it
            for position, source in enumerate(theirs):
                for layer, sources in written.digests.items():
                    if not source or source not in offered or source not in sources:
                        continue
                    if is_state:
                        assert sources[source] in found[layer].values(), (layer, source)
                        counts["state"] += 1
                        continue
                    content = found[layer][ours[position]]
                    is_read = content == sources[source]
                    assert is_read or content in self._held[layer, position], (layer, position)
                    counts["read" if is_read else "kept"] += 1
                    self._held[layer, position].add(content)
        return counts


def check(engines: Engines, model: str, tp_size: int, rank: int) -> None:
    """No hit, a partial hit, and a hit of all blocks."""
    options = {"tp_size": tp_size, "rank": rank, "max_tokens": 0}
    sides = [engines.start(model, role, **options) for role in ("kv_producer", "kv_consumer")]
    size = sides[1].call("tokens_per_block")
    pair = Rank(*sides)
    first, counts = pair.load(None, 2 * size + size // 2)
    assert counts["read"]
    assert not counts["kept"]
    longer = [*first.prefilled.prompt, *range(7, 7 + size)]
    _, counts = pair.load(longer)
    assert counts["read"]
    assert counts["kept"], "nothing was found in the consumer's own cache"
    part = counts["read"]
    _, counts = pair.load(longer[: 3 * size + 1])
    assert counts["kept"]
    assert counts["read"] < part, "blocks that the consumer has were read"
    engines.end_test()


@pytest.mark.requirement("R8", "R13", "R14")
@pytest.mark.parametrize(
    ("model", "tp_size"),
    [pytest.param(*case, marks=() if case in _QUICK else pytest.mark.soak) for case in _ALL],
)
def test_every_byte_is_where_it_belongs(engines: Engines, model: str, tp_size: int) -> None:
    """On all ranks, blocks that were read, others, and what lies between them."""
    for rank in range(tp_size):
        check(engines, model, tp_size, rank)


def test_no_model_is_left_out() -> None:
    presets = pytest.importorskip("sim.model.presets", exc_type=ImportError)
    assert sorted(presets.PRESETS) == _MODELS
