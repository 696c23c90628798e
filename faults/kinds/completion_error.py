"""Transfers that end with an error of the NIC."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import CompletionItem, CopyItem, WorkRequestItem
from sim.verdict import Fail

Status = Literal[
    "LOC_LEN",
    "LOC_QP_OP",
    "LOC_PROT",
    "WR_FLUSH",
    "MW_BIND",
    "BAD_RESP",
    "LOC_ACCESS",
    "REM_INV_REQ",
    "REM_ACCESS",
    "REM_OP",
    "RETRY_EXC",
    "RNR_RETRY_EXC",
]


class CompletionError(ItemFault, frozen=True, tag="completion-error"):
    """A transfer ends with an error status, which takes its queue pair with it.

    ``code`` is the status of the work completion, and ``message`` replaces its usual text. With
    ``landed`` the bytes were there before the acknowledgement got lost.
    """

    code: Status = "RETRY_EXC"
    message: str = ""
    landed: bool = False

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem, CompletionItem, CopyItem)

    def concerns(self, item: Any) -> bool:
        wanted = (CompletionItem,) if self.landed else (WorkRequestItem, CopyItem)
        return isinstance(item, wanted)

    def verdict(self, item: Any, scene: Scene) -> Fail:
        return Fail(self.code, self.message)
