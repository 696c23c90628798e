from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sim.engine.ledger import BlockLedger


class Manager:
    """What the ledger knows of a KV cache manager with one group; block ids are given away."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {}
        self.coordinator = SimpleNamespace(
            single_type_managers=[SimpleNamespace(req_to_blocks=self.tables)]
        )
        self.block_pool = SimpleNamespace(free_blocks=lambda blocks: None)

    def allocate_slots(self, request: Any, *block_ids: int) -> list[Any] | None:
        blocks = [SimpleNamespace(block_id=block_id) for block_id in block_ids]
        self.tables.setdefault(request.request_id, []).extend(blocks)
        return blocks or None

    def free(self, request: Any) -> None:
        self.block_pool.free_blocks(reversed(self.tables.pop(request.request_id)))

    def pop_blocks_for_free(self, request: Any) -> list[Any]:
        return self.tables.pop(request.request_id)


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def told(manager: Manager) -> list[Any]:
    told: list[Any] = []
    BlockLedger(
        manager,
        lambda *held: told.append(held),
        told.append,
        lambda refused: told.append(f"none for {refused}"),
    )
    return told


R0, R1 = SimpleNamespace(request_id="r0"), SimpleNamespace(request_id="r1")


def test_new_blocks_are_told_once_and_the_end_once(manager: Manager, told: list[Any]) -> None:
    """What a request already holds is no news; a failed allocation gives nothing, and is told."""
    manager.allocate_slots(R0, 4, 5)
    manager.allocate_slots(R0)
    manager.allocate_slots(R0, 6)
    manager.free(R0)
    assert told == [("r0", 0, [4, 5]), "none for r0", ("r0", 0, [6]), "r0"]


def test_blocks_taken_early_are_held_until_they_are_in_the_pool(
    manager: Manager, told: list[Any]
) -> None:
    """A step in flight may still write to them; frees of others meanwhile are their own."""
    manager.allocate_slots(R0, 4, 5)
    manager.allocate_slots(R1, 6, 7)
    told.clear()
    popped = manager.pop_blocks_for_free(R0)
    manager.free(R1)
    assert told == ["r1"]
    manager.block_pool.free_blocks(reversed(popped))
    manager.block_pool.free_blocks(reversed(popped))
    assert told == ["r1", "r0"]
