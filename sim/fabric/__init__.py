"""The simulated RDMA network, and the library ``mori.io`` on top of it."""

from sim.fabric.fabric import Fabric, LandingObserver
from sim.fabric.memory import MemoryRegion
from sim.fabric.profile import CX7, FabricProfile
from sim.fabric.verdicts import (
    CompletionItem,
    ControlItem,
    LandLate,
    LandPart,
    PeerPair,
    PostItem,
    PostPart,
    RegistrationItem,
    SessionItem,
    WorkRequestItem,
)
from sim.fabric.work import Landing, Operation

__all__ = [
    "CX7",
    "CompletionItem",
    "ControlItem",
    "Fabric",
    "FabricProfile",
    "LandLate",
    "LandPart",
    "Landing",
    "LandingObserver",
    "MemoryRegion",
    "Operation",
    "PeerPair",
    "PostItem",
    "PostPart",
    "RegistrationItem",
    "SessionItem",
    "WorkRequestItem",
]
