"""Event logs written by hand, and the stories that are told of them."""

from __future__ import annotations

from typing import Any

from faults.story import tell
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.units import MS


class Log:
    """Records at one millisecond each."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, actor: str, kind: str, **fields: Any) -> Log:
        self.records.append(Record(len(self.records) * MS, actor, kind, fields))
        return self

    def held(self, node: str, request: str, *runs: list[int], group: int = 0) -> Log:
        return self.add(
            f"{node}/core/main",
            "blocks-held",
            node=node,
            request=request,
            group=group,
            blocks=list(runs),
        )

    def at_the_same_time(self) -> Log:
        """Let the last record happen when the one before it did."""
        *_, before, last = self.records
        self.records[-1] = last._replace(time_ns=before.time_ns)
        return self

    def sent(self, leg: str, node: str) -> Log:
        request = leg.rpartition("-")[0]
        return self.add("router", "leg-sent", request=request, leg=leg, node=node, transfer=None)

    def freed(self, node: str, request: str) -> Log:
        return self.add(f"{node}/core/main", "blocks-freed", node=node, request=request)

    def forward(self, node: str, leg: str, start: int, end: int) -> Log:
        return self.add("hw", "forward-began", node=node, rank=0, requests=[[leg, start, end]])

    def read(self, uid: int) -> Log:
        fields = {"initiator": "d", "target": "p", "operation": "read", "uid": uid}
        self.add("d0/core/main", "posted", **fields)
        return self.add("hw", "landed", **fields)

    def violation(self, oracle: str, node: str | None, request: str | None) -> Log:
        return self.add(
            "d0/core/main", "violation", oracle=oracle, node=node, request=request, detail="..."
        )


def texts(log: Log, *violations: Violation) -> list[str]:
    return [moment.text for moment in tell(log.records, violations)]
