"""A router that asks twice."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.fault import CannotStrike, Fault
from faults.scene import Scene
from sim.router.options import Retry

_AFTER_HAND_OFF = ("queued_at_d", "allocated", "decode")


class RouterRetry(Fault, frozen=True, tag="router-retry"):
    """The router sends a request again while its first attempt is under way.

    With ``same_transfer_id`` the decode leg comes twice with the same parameters, to the ``same``
    consumer or to the ``other``; otherwise a new prefill leg begins a new transfer.
    """

    same_transfer_id: bool = True
    consumer: Literal["same", "other"] = "same"

    takes: ClassVar[tuple[str, ...]] = ("request",)

    def strike(self, scene: Scene) -> None:
        request = scene.client_request()
        router = scene.bed.router
        if self.same_transfer_id and router.phase_of(request) not in _AFTER_HAND_OFF:
            raise CannotStrike(f"{request} has not been handed off, so nothing can be repeated")
        scene.hit([request])
        router.retry(Retry(request, 0.0, self.same_transfer_id, self.consumer))
