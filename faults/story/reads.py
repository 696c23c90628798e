"""One load of a request's blocks is several transfers, often one for each layer.

Findings name the first, or the last, that touched a block. What belongs to it is all that the same
engine posted to the same peer in the same go, if it had one request to load then, and otherwise
what it posted between two transfers that are named.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sim.kernel.log import Record
from sim.units import US

IN_ONE_GO_NS = 50 * US
"""Operations that are posted within so long of each other belong together."""


@dataclass(frozen=True)
class _Post:
    time_ns: int
    uid: Any
    loads: int
    """How many requests its engine had given their first blocks by then."""


def with_other_layers(
    records: Iterable[Record], named: Container[Any], nodes: Container[str], layers: int
) -> list[Any]:
    """The transfers that belong to those ``named`` of engines among ``nodes``, in order.

    Args:
        records: the event log.
        named: the transfers that findings name.
        nodes: the engines that the findings are about.
        layers: in how many layers something was found; 0 if nobody says.
    """
    whole: list[Any] = []
    for posts in _by_peer(records, nodes):
        loads_before = 0
        for go in _apart(posts):
            is_of_one_request = go[-1].loads - loads_before == 1
            loads_before = go[-1].loads
            whole += _belonging(go, named, layers, is_whole=is_of_one_request)
    return list(dict.fromkeys(whole))


def _belonging(
    go: Sequence[_Post], named: Container[Any], layers: int, *, is_whole: bool
) -> list[Any]:
    uids = [post.uid for post in go]
    places = [place for place, uid in enumerate(uids) if uid in named]
    if places and is_whole:
        return uids
    if places and places[-1] - places[0] < layers:
        return uids[places[0] : places[-1] + 1]
    return [uids[place] for place in places]  # what is between may be for others


def parts_in_words(count: int, layers: int) -> str:
    """What to say behind *read* of ``count`` transfers: layers if there is one for each."""
    if count < 2:
        return ""
    return f" of {count} layers" if count == layers else f" in {count} parts"


def _by_peer(records: Iterable[Record], nodes: Container[str]) -> list[list[_Post]]:
    """What each endpoint of an engine posted to each other, in order."""
    served: dict[str, dict[str, None]] = {}
    posts: dict[tuple[str, ...], list[_Post]] = {}
    for record in records:
        fields = record.fields
        if record.kind == "blocks-held":
            served.setdefault(fields["node"], {})[fields["request"]] = None
        elif record.kind == "posted" and (node := record.actor.partition("/")[0]) in nodes:
            key = fields["initiator"], fields["target"], fields["operation"]
            post = _Post(record.time_ns, fields["uid"], len(served.get(node, ())))
            posts.setdefault(key, []).append(post)
    return list(posts.values())


def _apart(posts: Sequence[_Post]) -> list[Sequence[_Post]]:
    breaks = [
        place
        for place, (one, other) in enumerate(pairwise(posts), start=1)
        if other.time_ns - one.time_ns > IN_ONE_GO_NS
    ]
    return [posts[low:high] for low, high in pairwise([0, *breaks, len(posts)])]
