"""Violations as people want to read them: one sentence for what is one finding.

A wrong transfer shows in every layer and block that it touched. Oracles list the first few and
count the rest; here they become one group with one sentence that says how far it reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from faults.story import rank_of
from faults.wording import for_people
from sim.oracles import Violation
from sim.oracles.use_after_free import UseAfterFree
from sim.oracles.words import block_list, seconds
from sim.oracles.wrong_bytes import WrongBytesRead


@dataclass(frozen=True)
class FindingGroup:
    """Violations of one rule, of one kind, about one request (or node)."""

    oracle: str
    violations: tuple[Violation, ...]
    note: str = ""
    """What has to be said of it beside another group of the run."""

    @property
    def count(self) -> int:
        """How many findings there were, those that no violation lists included."""
        return sum(1 + int(v.evidence.get("not_listed", 0)) for v in self.violations)

    @property
    def sentence(self) -> str:
        """What was found, and how far it reaches."""
        first = self.violations[0]
        extent = first.evidence.get("extent")
        more = f" ({self.count - 1} more like this)" if self.count > 1 else ""
        found = _reach(first, extent) if self.count > 1 and extent else first.detail + more
        return for_people(f"{found} ({self.note})" if self.note else found)

    @property
    def traceback(self) -> list[str]:
        """What the exception behind the first finding came through, innermost first, if any."""
        lines: list[str] = self.violations[0].evidence.get("traceback", [])
        return lines


def group(violations: Iterable[Violation]) -> list[FindingGroup]:
    """The violations in groups: those first that say most, else in order of each group's first."""
    groups: dict[tuple[Any, ...], list[Violation]] = {}
    for v in violations:
        groups.setdefault((v.oracle, v.node, v.request_id, v.evidence.get("kind")), []).append(v)
    wrong = [members[0] for key, members in groups.items() if key[0] == WrongBytesRead.name]
    found = [
        FindingGroup(key[0], tuple(members), _beside(members, wrong))
        for key, members in groups.items()
    ]
    return sorted(found, key=lambda finding: rank_of(finding.oracle))


def _beside(members: Sequence[Violation], wrong: Sequence[Violation]) -> str:
    """That those of use-after-free name other blocks than wrong bytes of the same request."""
    first = members[0]
    named = {block for member in members for block in member.evidence.get("block_ids", ())}
    others = [
        found.evidence["extent"]["block_ids"]
        for found in wrong
        if (found.node, found.request_id) == (first.node, first.request_id)
        and "extent" in found.evidence
    ]
    wrong_there = {block for blocks in others for block in blocks}
    is_all_named = not any("not_listed" in member.evidence for member in members)
    if first.oracle != UseAfterFree.name or not others or not is_all_named:
        return ""
    parts = []
    if missing := sorted(wrong_there - named):
        parts.append(
            f"{WrongBytesRead.name} names {block_list(missing)} too: docs/violations.md says why"
        )
    if right := sorted(named - wrong_there):
        parts.append(f"{_are(right)} listed here only: the pass found no wrong bytes there")
    return "; ".join(parts)


def _are(blocks: Sequence[int]) -> str:
    return f"{block_list(blocks)} {'is' if len(blocks) == 1 else 'are'}"


def _reach(first: Violation, extent: dict[str, Any]) -> str:
    low, high = extent["tokens"]
    ranks = extent["ranks"]
    where = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(ranks)}"
    sentence = (
        f"{first.node} {where} read wrong bytes for {first.request_id}: "
        f"{_layers(extent['layers'])}, {block_list(extent['block_ids'])}, tokens {low}-{high}"
    )
    found = [f"the bytes of {_listed(extent['owners'])}"] if extent["owners"] else []
    found += [_listed(extent["found"])] if extent.get("found") else []
    if found:
        sentence += f"; found {' and '.join(found)}"
    if extent["source_block_ids"]:
        sentence += f", copied from {_sources(extent)} of {_listed(extent['source_nodes'])}"
    return "; ".join([sentence, *_overwritten(extent), *_let_go(first)])


def _sources(extent: dict[str, Any]) -> str:
    """As ranges if blocks kept their order on the way, else each with where it went."""
    pairs = extent.get("copied", ())
    sources = [source for _, source in pairs]
    if sources == sorted(sources):
        return block_list(extent["source_block_ids"])
    return "blocks " + _listed([f"{source} into {block}" for block, source in pairs])


def _overwritten(extent: dict[str, Any]) -> list[str]:
    """Who wrote to the blocks after the transfers that brought the bytes."""
    writes = [
        f"block {block} at {seconds(time_ns)} by {writer}"
        for time_ns, block, writer in extent.get("overwritten", ())
    ]
    return [f"written to after that transfer: {_listed(writes)}"] if writes else []


def _layers(layers: Sequence[str]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    return f"{len(layers)} layers ({layers[0]} to {layers[-1]})"


def _let_go(first: Violation) -> list[str]:
    """When the source gave the blocks up, which every finding of the group has in common."""
    return [link for link in first.evidence["chain"] if " let go of the blocks of " in link]


def _listed(items: Sequence[Any], limit: int = 4) -> str:
    shown = ", ".join(str(item) for item in items[:limit])
    return f"{shown} and {len(items) - limit} more" if len(items) > limit else shown
