"""Queue pairs that fail as a whole."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.fault import CannotStrike, Fault
from faults.scene import Scene
from sim.fabric.queue_pair import QueuePair, QueuePairState


class QueuePairError(Fault, frozen=True, tag="queue-pair-error"):
    """The queue pairs between two engines fail and flush what is outstanding and what comes later.

    ``event`` is what the driver reports; with ``none`` only completions tell.
    """

    event: Literal["QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "none"] = "none"

    takes: ClassVar[tuple[str, ...]] = ("node", "peer")

    def strike(self, scene: Scene) -> None:
        one, other = scene.pair()
        machines = {one.node.name, other.node.name}
        fabric = scene.world.fabric
        failing = [q for q in fabric.queue_pairs() if _connects(q, machines)]
        if not failing:
            raise CannotStrike(f"no queue pair is up between {one.name} and {other.name}")
        scene.hit(scene.lifecycle.requests_on(one.name, other.name), queue_pairs=len(failing))
        for queue_pair in failing:
            if self.event == "none":
                queue_pair.enter_error()
            else:
                fabric.raise_event(queue_pair.device, self.event, queue_pair)


def _connects(queue_pair: QueuePair, machines: set[str]) -> bool:
    if queue_pair.state is not QueuePairState.READY_TO_SEND or not queue_pair.device.alive:
        return False
    pair = queue_pair.pair
    return {pair.initiator_node, pair.target_node} == machines
