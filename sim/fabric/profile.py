"""How fast the simulated RDMA hardware and the library's host code are. Numbers, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from sim.fabric.timers import Timers
from sim.units import US


@dataclass(frozen=True, slots=True)
class FabricProfile:
    """Costs of one transfer, from the call to the status that says it is over.

    A batch of B items in W work requests over Q queue pairs costs its caller ``call_ns +
    Q x post_ns + W x work_request_ns`` and, with the GIL held, ``B x item_ns``. The NIC then
    needs ``max(W x nic_work_request_ns, bytes / rate)``, where the rate is shared with other
    transfers; the last byte lands ``*_landing_ns`` later and the status changes
    ``*_completion_ns`` after that. Rates are in bytes per nanosecond, which is GB/s.
    ``post_ns`` includes the notification of that queue pair, as the measured calls had one.
    """

    name: str
    nics_per_node: int
    nic_bytes_per_ns: float
    read_wire_bytes_per_byte: float
    """A read moves this many times its payload, because its measured rate is lower."""
    queue_pair_bytes_per_ns: float
    """Ceiling of what a single queue pair gets, however idle the NICs are."""
    nic_work_request_ns: int
    call_ns: int
    post_ns: int
    work_request_ns: int
    item_ns: int
    write_landing_ns: int
    write_completion_ns: int
    read_landing_ns: int
    read_completion_ns: int
    timers: Timers
    max_message_bytes: int
    control_exchange_ns: int
    """One request and reply of the control plane, connection included. Assumed, not measured."""


CX7 = FabricProfile(
    name="cx7",
    nics_per_node=8,
    # Least-squares fits of the library's published ConnectX-7 tables, batch 1 and one queue
    # pair: write 5.827 us + bytes / 49.561, read 6.609 us + bytes / 44.860.
    nic_bytes_per_ns=49.561,
    read_wire_bytes_per_byte=49.561 / 44.860,
    queue_pair_bytes_per_ns=49.561,
    # Per call, queue pair, work request and item: fits of the Thor2 tables and the timing of the
    # library's list conversion. The landing and completion times are what remains of the two
    # constants above; how they split is assumed.
    nic_work_request_ns=32,
    call_ns=500,
    post_ns=550,
    work_request_ns=50,
    item_ns=100,
    write_landing_ns=2_327,
    write_completion_ns=2_300,
    read_landing_ns=4_209,
    read_completion_ns=1_200,
    timers=Timers(),
    max_message_bytes=2**31,
    control_exchange_ns=300 * US,
)
"""NVIDIA ConnectX-7, 400 Gb/s."""


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
