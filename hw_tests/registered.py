"""What engines have logged of the caches that they registered, and whether two sides agree.

Each rank of the connector logs one ``caches-registered`` (docs/connector-log.md). Where an engine
has logged none, nothing is known of what was read, and that is a failure of the evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Final

import msgspec

_EVENT: Final = '"event": "caches-registered"'
_ROLES: Final = {"prefill": "producer", "decode": "consumer"}
HEAD: Final = ["engine", "role", "ranks", "blocks", "backend", "layers", "block, bytes",
               "stride, bytes", "shape", "payload"]  # fmt: skip
"""Of `Evidence.rows`."""


class _Layer(msgspec.Struct):
    layer: str
    payload: int
    block_bytes: int
    stride_bytes: int
    block_shape: tuple[int, ...]


class _Event(msgspec.Struct):
    """As docs/connector-log.md has it."""

    role: str
    rank: int
    blocks: int
    backend: str
    layers: list[_Layer]


@dataclass(frozen=True)
class Layers:
    """Layers that lie alike.

    Args:
        names: of the layers.
        payload: the entry of an offer whose blocks they are.
        block_bytes: that are read of each block.
        stride_bytes: from one block to the next.
        block_shape: of a block, as a kernel sees it.
    """

    names: tuple[str, ...]
    payload: int
    block_bytes: int
    stride_bytes: int
    block_shape: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.names)} layers: block {self.block_bytes:,} B, "
            f"stride {self.stride_bytes:,} B, shape {list(self.block_shape)}, "
            f"payload {self.payload}"
        )


@dataclass(frozen=True)
class Caches:
    """What some ranks of an engine have registered alike.

    Args:
        role: "producer" or "consumer".
        ranks: of tensor parallelism.
        blocks: of the cache.
        backend: of attention.
        layers: in the order of the first of each.
    """

    role: str
    ranks: tuple[int, ...]
    blocks: int
    backend: str
    layers: tuple[Layers, ...]

    def __str__(self) -> str:
        return "; ".join([self.backend, *map(str, self.layers)])


@dataclass(frozen=True)
class Evidence:
    """What is known of the caches of some engines.

    Args:
        sides: by the name of an engine.
        problems: what is not known, or not alike.
    """

    sides: Mapping[str, Sequence[Caches]]
    problems: Sequence[str]

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def said(self) -> str:
        """In one line, or one for each problem."""
        if self.problems:
            return "\n".join(self.problems)
        if len(self.sides) < 2:
            return f"only the log of {', '.join(self.sides)} is here, so nothing was compared"
        return f"{' and '.join(self.sides)} have registered the same"

    def rows(self) -> list[list[str]]:
        """A table, without its head: one row for layers that lie alike."""
        return [
            [name, caches.role, ", ".join(map(str, caches.ranks)), f"{caches.blocks:,}",
             caches.backend, str(len(layers.names)), f"{layers.block_bytes:,}",
             f"{layers.stride_bytes:,}", str(list(layers.block_shape)), str(layers.payload)]
            for name, side in self.sides.items() for caches in side for layers in caches.layers
        ]  # fmt: skip

    def document(self) -> dict[str, Any]:
        """For JSON."""
        sides = {name: [asdict(caches) for caches in side] for name, side in self.sides.items()}
        return {"passed": self.passed, "said": self.said, "sides": sides, "rows": self.rows()}


def compare(logs: Mapping[str, str], elsewhere: Collection[str] = ()) -> Evidence:
    """What the logs of both engines tell.

    Args:
        logs: by the engines' names, "prefill" and "decode".
        elsewhere: names of engines whose logs are not here, so that they are compared with nothing.
    """
    sides: dict[str, list[Caches]] = {}
    problems = [
        f"the log of {name} is not here, so nothing was compared; needed: the logs of both engines"
        for name in _ROLES
        if name not in logs and name not in elsewhere
    ]
    for name, log in logs.items():
        try:
            sides[name] = registered(log)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            sides[name] = []
            problems.append(f"{name}: a line about registered caches cannot be read: {error}")
            continue
        if not sides[name]:
            problems.append(
                f"{name} has logged no caches-registered, so nothing is known of its caches; "
                "needed: HybridReadConnector, and vLLM's logging at level INFO"
            )
        problems += [
            f"{name} has logged caches of a {role}, and is a {_ROLES[name]}; needed: the log of "
            f"{name} alone"
            for role in dict.fromkeys(caches.role for caches in sides[name])
            if role != _ROLES[name]
        ]
    if not problems:
        problems = _differences(sides)
    return Evidence(sides, problems)


def registered(log: str) -> list[Caches]:
    """In a log with whatever prefixes; what was told again after a restart is there once.

    Raises:
        MsgspecError, ValueError, RecursionError: a line about it is cut or foreign.
    """
    ranks: dict[Caches, set[int]] = {}
    for line in log.splitlines():
        if _EVENT in line:
            event = msgspec.json.decode(line[line.index("{") :], type=_Event)
            layers = _grouped(event.layers)
            alike = Caches(event.role, (), event.blocks, event.backend, layers)
            ranks.setdefault(alike, set()).add(event.rank)
    return [
        Caches(each.role, tuple(sorted(of)), each.blocks, each.backend, each.layers)
        for each, of in ranks.items()
    ]


def _grouped(layers: Sequence[_Layer]) -> tuple[Layers, ...]:
    names: dict[tuple[int, int, int, tuple[int, ...]], list[str]] = {}
    for layer in layers:
        alike = (layer.payload, layer.block_bytes, layer.stride_bytes, layer.block_shape)
        names.setdefault(alike, []).append(layer.layer)
    return tuple(Layers(tuple(of), *alike) for alike, of in names.items())


def _differences(sides: Mapping[str, Sequence[Caches]]) -> list[str]:
    """Of what the connector wants to be equal: all but the number of blocks and of ranks."""
    told = {name: list(dict.fromkeys((c.backend, c.layers) for c in of))
            for name, of in sides.items()}  # fmt: skip
    (one, ours), *others = told.items()
    return [
        f"{one} and {other} differ:\n{_first_difference(one, ours, other, theirs)}"
        for other, theirs in others
        if ours != theirs
    ]


def _first_difference(one: str, ours: Sequence[Any], other: str, theirs: Sequence[Any]) -> str:
    lines = [[f"{backend}, {layers}, {layers.names[0]}" for backend, of in side for layers in of]
             for side in (ours, theirs)]  # fmt: skip
    pairs = zip_longest(*lines, fillvalue="nothing")
    mine, yours = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return f"  {one}: {mine}\n  {other}: {yours}"
