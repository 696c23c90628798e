"""Turns mismatching cache entries into findings: which layer, blocks, tokens, and whose bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.memory import RankMemory
from sim.model.state_verify import FoundState, StateMismatch
from sim.model.verify import Found, Mismatch
from sim.probes import WrongBytes

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class WrongBytesReporter:
    """Describes what one rank's forward passes found wrong."""

    def __init__(self, engine: Engine, rank: int, memory: RankMemory) -> None:
        self._engine = engine
        self._rank = rank
        self._memory = memory

    def finding(self, request_id: str, group: int, mismatch: Mismatch) -> WrongBytes:
        """The mismatch with its owner, if the bytes are anybody's, and its history."""
        owner = self._owner(mismatch.content)
        return WrongBytes(
            node=self._engine.name,
            rank=self._rank,
            request_id=request_id,
            layer=mismatch.layer,
            group=group,
            block_ids=mismatch.block_ids,
            first_token=mismatch.first_token,
            last_token=mismatch.last_token,
            found=_in_words(mismatch.content, owner),
            owner=owner[0] if owner else None,
            history=self._history(mismatch.block_ids[0]),
        )

    def state_finding(
        self, request_id: str, group: int, mismatch: StateMismatch, token: int, block_id: int
    ) -> WrongBytes:
        """The same for a part, in ``block_id``, of the state after ``token``."""
        owner = self._owner(mismatch.content)
        return WrongBytes(
            node=self._engine.name,
            rank=self._rank,
            request_id=request_id,
            layer=mismatch.layer,
            group=group,
            block_ids=(block_id,),
            first_token=token,
            last_token=token,
            found=_in_words(mismatch.content, owner),
            owner=owner[0] if owner else None,
            history=self._history(block_id),
        )

    def _owner(self, found: Found | FoundState) -> tuple[str, int] | None:
        if found.prefix_hash is None:
            return None
        return self._engine.world.owners.find(found.prefix_hash)

    def _history(self, block_id: int) -> tuple[str, ...]:
        write = self._memory.last_write(block_id)
        if write is None:
            return (f"block {block_id} was never written to",)
        when = f"{write.time_ns / 1e9:.6f} s"
        return (f"block {block_id} was last written at {when} by {write.describe()}",)


def _in_words(found: Found | FoundState, owner: tuple[str, int] | None) -> str:
    if found.kind == "zeros":
        return "zeros"
    if owner is not None:
        return f"the bytes of {owner[0]}, token {owner[1]}, layer {found.layer}"
    if found.kind == "entry":
        return f"a well-formed entry of no known request (layer {found.layer})"
    return f"bytes that no token of this layer has ({found.sample.hex()}…)"
