"""Turns mismatching cache entries into findings: which layer, blocks, tokens, and whose bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.engine.memory import RankMemory
from sim.model.state_verify import FoundState, StateMismatch
from sim.model.verify import Found, Mismatch
from sim.probes import WrongBytes
from sim.request_ids import logical_id
from sim.units import ns_to_seconds

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class WrongBytesReporter:
    """Describes what one rank's forward passes found wrong."""

    def __init__(self, engine: Engine, rank: int, memory: RankMemory) -> None:
        self._engine = engine
        self._rank = rank
        self._memory = memory

    def finding(
        self, request_id: str, group: int, mismatch: Mismatch, kind: str | None = None
    ) -> WrongBytes:
        """The mismatch with its owner, if the bytes are anybody's, and its history."""
        return WrongBytes(
            node=self._engine.name,
            rank=self._rank,
            request_id=request_id,
            layer=mismatch.layer,
            group=group,
            block_ids=mismatch.block_ids,
            first_token=mismatch.first_token,
            last_token=mismatch.last_token,
            kind=kind,
            **self._what(request_id, mismatch.content, mismatch.first_token),
            **self._history(mismatch.block_ids[0]),
        )

    def state_finding(
        self, request_id: str, group: int, mismatch: StateMismatch, token: int, block_id: int
    ) -> WrongBytes:
        """The same for a part, in ``block_id``, of the state after ``token``."""
        return WrongBytes(
            node=self._engine.name,
            rank=self._rank,
            request_id=request_id,
            layer=mismatch.layer,
            group=group,
            block_ids=(block_id,),
            first_token=token,
            last_token=token,
            **self._what(request_id, mismatch.content, token),
            **self._history(block_id),
        )

    def _what(self, request_id: str, content: Found | FoundState, token: int) -> dict[str, Any]:
        """What is in the place of ``token``, and the other request that it belongs to, if any."""
        owner = None
        if content.prefix_hash is not None:
            owner = self._engine.world.owners.find(content.prefix_hash)
        if owner is not None and owner[0] == logical_id(request_id) and owner[1] != token:
            found = f"its own token {owner[1]} where token {token} belongs (layer {content.layer})"
            return {"found": found, "owner": None}
        return {"found": _in_words(content, owner), "owner": owner[0] if owner else None}

    def _history(self, block_id: int) -> dict[str, Any]:
        write = self._memory.last_write(block_id)
        if write is None:
            return {"history": (f"block {block_id} was never written to",)}
        writer, when = write.describe(), f"{ns_to_seconds(write.time_ns):.6f} s"
        history = (f"block {block_id} was last written at {when} by {writer}",)
        return {"history": history, "written_ns": write.time_ns, "writer": writer}


def _in_words(found: Found | FoundState, owner: tuple[str, int] | None) -> str:
    if found.kind == "zeros":
        return "zeros"
    if owner is not None:
        return f"the bytes of {owner[0]}, token {owner[1]}, layer {found.layer}"
    if found.kind == "entry":
        return f"a well-formed entry of no known request (layer {found.layer})"
    return f"bytes that no token of this layer has ({found.sample.hex()}…)"
