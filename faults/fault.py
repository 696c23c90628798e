"""What a fault is: frozen data that says when it strikes, whom, and what it does then.

A kind of fault is one file in ``faults/kinds``; everything else (the file format, the command
line, schedules, coverage) follows from its class. A fault does nothing by itself: the nemesis
(``faults.nemesis``) watches for its moment, calls ``strike``, and heals what can be healed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import msgspec

from sim.lifecycle import Phase
from sim.router.options import Seconds

if TYPE_CHECKING:
    from faults.scene import Scene
    from sim.scenario import Scenario

Heal = Callable[[], None]
Point = Literal["fabric", "network", "router", "device"]
"""A part of the world whose items faults judge."""
Count = Annotated[int, msgspec.Meta(ge=1)]
Whole = Annotated[int, msgspec.Meta(ge=0)]

Event = Literal[
    "message-sent",
    "message-delivered",
    "posted",
    "landed",
    "completion",
    "blocks-held",
    "blocks-freed",
    "sending-finished",
    "receiving-finished",
    "leg-sent",
    "leg-finished",
    "request-arrived",
    "request-ended",
    "engine-started",
    "engine-died",
]
"""Records of the event log that a trigger can count."""


class CannotStrike(Exception):
    """The moment has come, and there is nobody to strike; says why."""


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When: from ``at_s`` on, and then at once or at the moment that one of the others names."""

    at_s: Seconds = 0.0
    """Seconds since the workload began."""
    phase: Phase | None = None
    """A request enters this phase: one that the target serves or may yet be given, or any."""
    event: Event | None = None
    """Something is written to the event log, about the target's node and request if it has them."""
    nth: Count = 1
    """The how many-th time that ``phase`` or ``event`` comes about."""
    during: Phase | None = None
    """Whenever such a request is in this phase, and only as long."""

    def __post_init__(self) -> None:
        """Refuse two moments, and a number of nothing."""
        given = [name for name in ("phase", "event", "during") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other; give one")
        if self.nth > 1 and not (self.phase or self.event):
            raise ValueError(f"nth is {self.nth}, and counts phase or event; give one of them")


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom; what is left out is drawn from the seed, or means everybody, as the kind says.

    Of a message or a transfer ``node`` is the end that sends or posts, and ``peer`` the other.
    """

    node: str | None = None
    peer: str | None = None
    rank: Whole | None = None
    request: str | None = None

    def given(self) -> list[str]:
        """The names of the fields that are set."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"
):
    """Base of all kinds. The first line of a kind's docstring is what people read in lists.

    ``takes`` names the fields of Target that the kind looks at. ``before_start``: it strikes before
    engines start, whatever ``when`` says. ``breaks_contract``: no connector can notice it without
    looking at the bytes. ``needs_fail_closed``: only a connector survives it that refuses what
    it cannot know to be right. ``sets_apart``: its peers may refuse for good whom it strikes.
    """

    when: Trigger = Trigger()
    target: Target = Target()

    takes: ClassVar[tuple[str, ...]] = ("node",)
    before_start: ClassVar[bool] = False
    at_once: ClassVar[bool] = False
    """Whether it may strike in the middle of somebody's turn; what stops processes may not."""
    breaks_contract: ClassVar[bool] = False
    needs_fail_closed: ClassVar[bool] = False
    sets_apart: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a target that would be ignored."""
        waits_for_request = self.when.phase or self.when.during or self.when.event
        accepted = (*self.takes, "request") if waits_for_request else self.takes
        for name in self.target.given():
            if name not in accepted:
                raise ValueError(
                    f"target.{name} means nothing to {self.kind()}; "
                    f"it takes {', '.join(accepted) or 'no target'}"
                )

    @classmethod
    def kind(cls) -> str:
        """The name of the kind."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def summary(cls) -> str:
        """One line."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    @classmethod
    def variants(cls, scenario: Scenario) -> Sequence[dict[str, Any]]:
        """Parameters to draw one set from, where no choice of values would do: each makes sense in
        ``scenario``."""
        return ({},)

    def strike(self, scene: Scene) -> Heal | None:
        """Do it; return what undoes it, if it can be undone.

        Raises:
            CannotStrike: the target is not there now.
        """
        raise NotImplementedError


class LastingFault(Fault, frozen=True):
    """A fault with an end: after ``for_s``, and at the latest when the quiet phase begins."""

    for_s: Seconds | None = None

    longest_s: ClassVar[float | None] = None
    """What campaigns draw for the longest; None if it may last until the quiet phase."""


def parameters(kind: type[Fault]) -> tuple[str, ...]:
    """The fields that belong to a kind alone, in order."""
    return tuple(name for name in kind.__struct_fields__ if name not in ("when", "target"))


def flat_keys() -> dict[str, str]:
    """Where the keys of triggers and targets belong that the command line takes without it."""
    return {
        **dict.fromkeys(Trigger.__struct_fields__, "when"),
        **dict.fromkeys(Target.__struct_fields__, "target"),
    }


EVENTS: tuple[Event, ...] = get_args(Event)
