"""The simulated RDMA network, copies between GPUs, and the library ``mori.io`` on top of it."""

from sim.fabric.fabric import Fabric, LandingObserver
from sim.fabric.memory import MemoryRegion
from sim.fabric.named import CX7, fabric_names, named_fabric
from sim.fabric.profile import MI300X_XGMI, FabricProfile, XgmiProfile
from sim.fabric.verdicts import (
    CompletionItem,
    ControlItem,
    CopyItem,
    CopyPostItem,
    LandLate,
    LandPart,
    PeerPair,
    PostItem,
    PostPart,
    RegistrationItem,
    SendItem,
    SessionItem,
    WorkRequestItem,
)
from sim.fabric.work import Landing, Operation

__all__ = [
    "CX7",
    "MI300X_XGMI",
    "CompletionItem",
    "ControlItem",
    "CopyItem",
    "CopyPostItem",
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
    "SendItem",
    "SessionItem",
    "WorkRequestItem",
    "XgmiProfile",
    "fabric_names",
    "named_fabric",
]
