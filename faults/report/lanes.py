"""The lanes of a space-time diagram, and which of them a record belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.kernel.log import Record

_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_RANK = re.compile(r"rank(\d+)")


class Lane(NamedTuple):
    """A part of an engine, or of the testbed where ``engine`` is empty."""

    engine: str
    name: str


FAULTS, ROUTER = Lane("", "faults"), Lane("", "router")
_ENGINE, _CARD = "engine", "NIC"


def engine_lane(node: str) -> Lane:
    """The engine's core: scheduler and block pool."""
    return Lane(node, _ENGINE)


def rank_lane(node: str, rank: int) -> Lane:
    """One of its workers."""
    return Lane(node, f"rank {rank}")


def card_lane(machine: str) -> Lane:
    """The network cards of a machine."""
    return Lane(machine, _CARD)


def process_lane(process: str) -> Lane:
    """The lane of ``node/process`` or ``node/process/task``."""
    node, _, rest = process.partition("/")
    name = rest.partition("/")[0]
    rank = _RANK.fullmatch(name)
    if rank:
        return rank_lane(node, int(rank[1]))
    return engine_lane(node) if name in ("core", "") else Lane(node, name)


class Machines:
    """Which machine an RDMA endpoint's name means: they have addresses in them, and whoever posts
    shows whose address that is."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._of_address: dict[str, str] = {}
        for record in records:
            if record.kind == "posted" and (address := _ADDRESS.search(record.fields["initiator"])):
                machine = record.actor.partition("/")[0]
                self._of_address.setdefault(address[0], machine)
        started = (str(r.fields["node"]) for r in records if r.kind == "engine-started")
        machines = dict.fromkeys(node.partition("-dp")[0] for node in started)
        # The testbed numbers machines from 1, producers first.
        for number, machine in enumerate(sorted(machines, key=lambda m: (m[0] != "p", m)), 1):
            self._of_address.setdefault(f"10.0.0.{number}", machine)

    def of_endpoint(self, endpoint: str) -> str:
        """The machine's name, or the endpoint's where no machine is known for it."""
        address = _ADDRESS.search(endpoint)
        return self._of_address.get(address[0], endpoint) if address else endpoint


def in_order(lanes: Iterable[Lane], nodes: Sequence[str]) -> list[Lane]:
    """Faults and router first, then engines; the network cards of producers on the right and of
    consumers on the left, so that what they exchange crosses nothing."""
    places = {node: place for place, node in enumerate(nodes)}

    def key(lane: Lane) -> tuple[int, int, str]:
        within = {_ENGINE: 0, _CARD: 2}.get(lane.name, 1)
        if not lane.engine.startswith("p"):
            within = -within
        place = places.get(lane.engine, len(places)) if lane.engine else -1
        return place, within, lane.name

    return sorted(set(lanes), key=key)
