from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.transferred import TransferCount, Transferred


def landing(blocks: list[int], size: int = 10) -> Any:
    return SimpleNamespace(
        destination=blocks, destination_offsets=None, sizes=np.full(len(blocks), size)
    )


def counted(owners: dict[int, str], *landings: Any) -> dict[str, Transferred]:
    """What is counted when ``owners`` says who holds which block; the last named came last."""
    names = list(owners.values())

    def newest(ids: Any) -> str | None:
        held = [names.index(owners[i]) for i in ids.tolist() if i in owners]
        return names[max(held)] if held else None

    def locate(region: Any, offsets: Any, sizes: Any) -> Any:
        worker = SimpleNamespace(engine=SimpleNamespace(name="d0"))
        return (worker, SimpleNamespace(blocks=np.unique(region))) if region else None

    blocks: Any = SimpleNamespace(node=lambda _: SimpleNamespace(newest_owner_among=newest))
    count = TransferCount(locate, blocks, "epilogue")
    for one in landings:
        count.after_landing(one)
    return count.by_request()


def test_blocks_count_once_and_bytes_of_every_layer() -> None:
    """A common prefix is read for the request that came last."""
    owners = {1: "r0-d0", 2: "r0-d0", 3: "r1-d0"}
    layers = [landing([1, 2]), landing([1, 2]), landing([1, 3]), landing([2])]
    assert counted(owners, *layers) == {
        "r0": Transferred(blocks=2, bytes=50, landings=3),
        "r1": Transferred(blocks=2, bytes=20, landings=1),
    }


def test_what_lands_for_nobody_or_the_epilogue_is_not_counted() -> None:
    """Nor what lands outside of caches."""
    assert counted({1: "epilogue-d0"}, landing([1]), landing([9]), landing([])) == {}
