"""A router that mixes two requests up."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

from faults.fault import Heal, LastingFault
from faults.scene import Scene
from sim.router.ongoing import HandOff
from sim.verdict import Corrupt


class MixedUpParams(LastingFault, frozen=True, tag="mixed-up-params"):
    """The router gives a consumer the transfer parameters of the request before.

    The producer holds those blocks, and they may be as many, so nothing but the prompt tells.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    at_once: ClassVar[bool] = True
    needs_fail_closed: ClassVar[bool] = True

    def strike(self, scene: Scene) -> Heal:
        """Remember the next hand-off, and mix up the one after it."""
        rule, chain = _MixUp(scene), scene.verdicts("router")
        chain.add(rule)
        return lambda: chain.remove(rule)


class _MixUp:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._before: HandOff | None = None
        self._is_over = False

    def judge(self, item: Any) -> Corrupt | None:
        if self._is_over or not isinstance(item, HandOff) or not item.params:
            return None
        before = self._before
        if before is None:
            self._before = replace(item, params=copy.deepcopy(item.params))
            return None
        self._is_over = True
        self._scene.hit([item.request_id], item=type(item).__name__)
        self._scene.world.probes.params_lent(item.request_id, before.request_id)
        return Corrupt(lambda params: before.params)
