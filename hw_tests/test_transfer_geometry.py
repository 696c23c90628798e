"""Every model's caches, at every size of tensor parallelism, read by the connector's own code."""

from __future__ import annotations

from typing import Any

import pytest

from hw_tests.arms.sim import run_on_sim
from hw_tests.conftest import cannot
from hw_tests.geometry import HITS, check_read, make_rank, plan
from sim.model.presets import PRESETS, Geometry


def check(name: str, tp_size: int, geometry: Geometry = "reduced") -> None:
    """Every rank, for no, a partial and a full hit."""
    workers, layout = plan(name, tp_size, geometry)
    for rank, config in enumerate(workers):
        theirs = make_rank(config, layout, "cpu", 2 * rank)
        for num_hit in HITS.values():
            ours = make_rank(config, layout, "cpu", 2 * rank + 1)
            run_on_sim(lambda arm: check_read(arm, ours, theirs, num_hit))  # noqa: B023


@pytest.fixture(autouse=True)
def only_simulated(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--arm") != "sim":
        cannot(request.config, "only the simulated library is read through here as yet")


@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_byte_is_where_it_belongs(name: str, tp_size: int) -> None:
    """On all ranks: blocks that were read, blocks beside them, padding, and the producer's."""
    check(name, tp_size)


@pytest.mark.soak
@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_byte_is_where_it_belongs_with_real_dimensions(name: str, tp_size: int) -> None:
    check(name, tp_size, "real")


@pytest.mark.parametrize("name", ["llama", "kimi-linear"])
def test_a_byte_too_far_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last piece, on our side: one that belongs to nobody's read."""
    from connector.memory import CacheMemory  # noqa: PLC0415

    offsets = CacheMemory.read_offsets

    def longer(*arguments: Any) -> Any:
        ours, theirs, sizes = offsets(*arguments)
        return ours, theirs, [*sizes[:-1], sizes[-1] + 1] if sizes else sizes

    monkeypatch.setattr(CacheMemory, "read_offsets", longer)
    with pytest.raises(AssertionError, match=r"of the consumer's bytes are wrong|out of range"):
        check(name, 1)
