"""Hand-offs that say something else than the producer did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from faults.fault import Point
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.router.ongoing import HandOff
from sim.verdict import Corrupt

Wrong = Literal["missing-key", "no-blocks", "short-blocks", "foreign-blocks", "stale-engine"]
_BLOCKS, _ENGINE = "remote_block_ids", "remote_engine_id"


class WrongParams(ItemFault, frozen=True, tag="wrong-params"):
    """The consumer gets transfer parameters that are not those of its request.

    ``wrong``: a key that is drawn is missing; there are no blocks; the last block of each group is
    missing; all block ids are one too high; or the engine id is that of an earlier incarnation.
    """

    wrong: Wrong = "missing-key"

    point: ClassVar[Point] = "router"
    items: ClassVar[tuple[type, ...]] = (HandOff,)
    takes: ClassVar[tuple[str, ...]] = ("node", "request")

    def verdict(self, item: Any, scene: Scene) -> Corrupt | None:
        concerns_blocks = self.wrong in ("no-blocks", "short-blocks", "foreign-blocks")
        if not item.params or (concerns_blocks and not item.params.get(_BLOCKS)):
            return None
        return Corrupt(lambda params: self._change(params, scene))

    def _change(self, params: dict[str, Any], scene: Scene) -> dict[str, Any]:
        match self.wrong:
            case "missing-key":
                del params[scene.rng.choice(sorted(params))]
            case "no-blocks":
                params[_BLOCKS] = _mapped(params[_BLOCKS], lambda ids: [])
            case "short-blocks":
                params[_BLOCKS] = _mapped(params[_BLOCKS], lambda ids: ids[:-1])
            case "foreign-blocks":
                params[_BLOCKS] = _mapped(params[_BLOCKS], lambda ids: [i + 1 for i in ids])
            case "stale-engine":
                params[_ENGINE] = f"{params.get(_ENGINE)}-before"
        return params


def _mapped(blocks: Any, change: Callable[[list[int]], list[int]]) -> Any:
    """``change`` applied to the block ids of each group, however groups are nested."""
    if all(isinstance(block, int) for block in blocks):
        return change(list(blocks))
    return [_mapped(group, change) for group in blocks]
