"""Simulated machines and operating-system processes: what a crash, a pause or the GIL stops."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.kernel.task import Task


@dataclass(eq=False)
class Node:
    """A machine: one address, one wall clock. Monotonic clocks never jump, wall clocks may."""

    name: str
    ip: str
    wall_offset_ns: int = 0


class ProcessState(enum.Enum):
    """A paused process goes on later, a dead one never."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(eq=False)
class Process:
    """An operating-system process: its tasks share memory, a GIL and their fate.

    ``incarnation`` counts the starts on the same address. ``owner`` is what the process is part
    of, by default its node. ``exit_reason`` is why it ended by itself, if it did. ``within``
    counts what happened in it without being noticed outside. ``resources`` is what others keep per
    process, each under a key of its own: facades, the guest loader, the device.
    """

    node: Node
    name: str
    incarnation: int = 0
    owner: str = ""
    state: ProcessState = ProcessState.RUNNING
    exit_reason: str | None = None
    gil_owner: Task | None = None
    tasks: list[Task] = field(default_factory=list)
    deferred: list[Task] = field(default_factory=list)
    within: int = 0
    resources: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.owner = self.owner or self.node.name

    @property
    def path(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def may_run(self, task: Task) -> bool:
        """Whether ``task`` may be switched to now; if not, its wake-up is kept for later."""
        if self.state is not ProcessState.RUNNING:
            return False
        return self.gil_owner is None or self.gil_owner is task or not task.needs_gil
