"""How fast the simulated RDMA hardware and the library's host code are. Numbers, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from sim.fabric.timers import Timers
from sim.units import US

Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
BytesPerNs = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class FabricProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Costs of one transfer, from the call to the status that says it is over.

    A batch of B items in W work requests over Q queue pairs costs its caller, with the GIL held,
    ``B x item_ns``, then ``call_ns + W x *_prepare_ns`` before the first of Q posts, and
    ``Q x post_ns + W x work_request_ns`` while it posts. The NIC then needs
    ``max(W x nic_work_request_ns, bytes / rate)``, where the rate is shared with other transfers;
    the last byte lands ``*_landing_ns`` later and the status changes ``*_completion_ns`` after
    that. Rates are in bytes per nanosecond, which is GB/s. Behind the data the caller posts a
    notification on every queue pair of the session, for ``notify_ns`` each; 0 if ``post_ns``
    includes it.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    nics_per_node: Annotated[int, msgspec.Meta(ge=0)] = 8
    nic_bytes_per_ns: BytesPerNs
    read_bytes_per_ns: BytesPerNs
    """What a single read gets of an idle NIC: it moves more than its payload."""
    queue_pair_bytes_per_ns: BytesPerNs
    """Ceiling of what a single queue pair gets, however idle the NICs are."""
    nic_work_request_ns: Nanoseconds
    call_ns: Nanoseconds
    post_ns: Nanoseconds
    notify_ns: Nanoseconds = 0
    work_request_ns: Nanoseconds
    write_prepare_ns: Nanoseconds = 0
    read_prepare_ns: Nanoseconds = 0
    item_ns: Nanoseconds
    write_landing_ns: Nanoseconds
    write_completion_ns: Nanoseconds
    read_landing_ns: Nanoseconds
    read_completion_ns: Nanoseconds
    timers: Timers = Timers()
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1)] = 2**31
    control_exchange_ns: Nanoseconds = 300 * US
    """One request and reply of the control plane, connection included. Assumed, not measured."""

    def __post_init__(self) -> None:
        """Refuse reads that are faster than the NIC."""
        if self.read_bytes_per_ns > self.nic_bytes_per_ns:
            raise ValueError(
                f"read_bytes_per_ns: is {self.read_bytes_per_ns:g}, expected at most "
                f"nic_bytes_per_ns, which is {self.nic_bytes_per_ns:g}"
            )

    @property
    def read_wire_bytes_per_byte(self) -> float:
        """A read moves this many times its payload, because its measured rate is lower."""
        return self.nic_bytes_per_ns / self.read_bytes_per_ns


@dataclass(frozen=True, slots=True)
class XgmiProfile:
    """Costs of a transfer between GPUs of one machine.

    A call that needs C copies costs its caller ``call_ns + C x launch_ns``. The stream then needs
    ``C x copy_ns`` and the time of the bytes at a rate that is shared with other copies between
    the same two GPUs.
    """

    name: str
    link_bytes_per_ns: float
    """Between two GPUs, in one direction."""
    local_bytes_per_ns: float
    """Within one GPU."""
    call_ns: int
    launch_ns: int
    copy_ns: int
    peer_access: bool = True
    """Whether GPUs can use each other's memory at all."""


MI300X_XGMI = XgmiProfile(
    name="mi300x",
    # 48 of the link's 64 GB/s get through, says a report about another library
    # (ROCm/rccl issue 1210). Everything else is assumed; there is no published table.
    link_bytes_per_ns=48.0,
    local_bytes_per_ns=1_500.0,
    call_ns=4_000,
    launch_ns=2_500,
    copy_ns=3_000,
)
"""Eight MI300X, each linked to each."""
