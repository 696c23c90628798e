"""The library's texts, which callers parse."""

from __future__ import annotations

from sim.fabric.mori.config import RdmaBackendConfig
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.send_queue import SendQueue
from sim.fabric.work import Completion, CompletionStatus

DEGRADED = "EP is degraded, rejecting new submissions"
FAILED_BY_EVENT = "endpoint was failed by a fatal verbs async event; submission rejected"
NO_BACKEND = "No available backend found, create backend first"
NO_DEVICE = (
    "no active RDMA device on this host; set MORI_DISABLE_AUTO_XGMI=0 to use XGMI where GPUs "
    "have peer access"
)
NOTIFY_REFUSED = (
    "ibv_post_send (notify) failed with 12: Cannot allocate memory"
    " Hint: lower the queue depth or the number of queue pairs, or disable notification"
)
UNREACHABLE = "peer did not acknowledge within the retry budget"

_HINTS = {
    CompletionStatus.LOC_LEN: "check SGE lengths and offsets",
    CompletionStatus.LOC_PROT: "check memory registration, lkey and address range",
    CompletionStatus.REM_ACCESS: "check remote memory registration, rkey and address range",
    CompletionStatus.REM_OP: "check that both sides use compatible verbs and queue-pair states",
    CompletionStatus.RETRY_EXC: (
        "check that the peer is alive, GID index and SL/TC; raise MORI_IO_QP_TIMEOUT "
        "(14, ~537 ms, max 31); the retry count is already at its maximum"
    ),
    CompletionStatus.RNR_RETRY_EXC: (
        "raise notif_per_qp or the maximum of receive WRs, or disable notification"
    ),
}
_EVENTS = {
    "CQ_ERR": "completion queue failed, so no further completion can be reaped for this endpoint",
    "DEVICE_FATAL": "device reported a fatal error affecting every endpoint on its context",
}
_QUEUE_PAIR_EVENT = (
    "queue pair entered Error state and must be rebuilt before it can carry traffic again"
)


def completion_text(completion: Completion) -> str:
    """Message of a transfer that a completion made fail."""
    hint = _HINTS.get(completion.status)
    return f"{completion.text} Hint: {hint}" if hint else completion.text


def event_text(name: str) -> str:
    """Message of a transfer that an asynchronous event made fail."""
    return f"verbs async event IBV_EVENT_{name}: {_EVENTS.get(name, _QUEUE_PAIR_EVENT)}"


def send_queue_full(
    endpoint: int,
    queue: SendQueue,
    requested: int,
    settings: MoriSettings,
    config: RdmaBackendConfig,
    *,
    kind: str = "batch",
    depth: int | None = None,
) -> str:
    """Message of a call whose chain, or notification, found no room in time."""
    shown = queue.depth if depth is None else depth
    return (
        f"SQ full ({kind}): ep={endpoint} depth={shown} requested={requested} max={queue.limit}"
        f" Hint: raise MORI_IO_SQ_BACKOFF_TIMEOUT_US (now {settings.send_queue_backoff_us}), "
        "raise MORI_IO_QP_MAX_SEND_WR, "
        f"use a smaller postBatchSize (now {config.post_batch_size}) or more qpPerTransfer"
    )


def post_refused(posted: int, count: int) -> str:
    """Message of a call whose chain the provider did not take, or not wholly."""
    return (
        f"ibv_post_send failed with 12: Cannot allocate memory (posted {posted}/{count} WRs)"
        " Hint: lower the queue depth or the number of queue pairs"
    )
