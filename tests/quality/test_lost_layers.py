"""A hand-over that leaves out a layer, or mixes up requests, is noticed by what reads the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.engine.hand_offs import HandOffs
from sim.outcome import Outcome
from sim.probes import Probe, WrongBytes
from sim.reference import back_door
from sim.run import run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.scenario.workloads import EPILOGUE
from sim.workload import Segment

MODEL = "glm-flash-nospec"
RING, INDEXER = "indexer.tail_cache", "indexer.k_cache"


class Findings(Probe):
    """All that forward passes find wrong for the requests of the workload."""

    def __init__(self) -> None:
        self.all: list[WrongBytes] = []

    def wrong_bytes(self, finding: WrongBytes) -> None:
        if not finding.request_id.startswith(EPILOGUE):
            self.all.append(finding)


def served(lengths: list[int], **settings: str) -> tuple[Outcome, list[WrongBytes]]:
    requests = tuple(
        InlineRequest(f"req-{n}", (Segment(n, length),), 8, arrival_s=0.3 * n)
        for n, length in enumerate(lengths)
    )
    scenario = Scenario(
        model=settings.pop("model", MODEL),
        connector="reference",
        workload=InlineWorkload(requests),
    )
    findings = Findings()
    outcome = run(with_settings(scenario, settings), probe=findings).outcome
    return outcome, findings.all


def leave_out(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Make the connector's worker half forget the layers with that end of their names."""
    write: Callable[..., None] = back_door._write

    def forgetful(worker: Any, group: Any, placement: Any, what: str) -> None:
        layers = {n: rows for n, rows in group.layers.items() if not n.endswith(suffix)}
        if layers:
            write(worker, back_door._Group(group.rows, layers), placement, what)

    monkeypatch.setattr(back_door, "_write", forgetful)


def tokens(finding: WrongBytes) -> tuple[int, int]:
    return finding.first_token, finding.last_token


@pytest.mark.parametrize("check", ["incremental", "full"])
def test_a_ring_that_is_left_out_is_missed_when_its_group_is_completed(
    monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    """The consumer gets all but the last token. It needs the ring unless these are whole groups."""
    leave_out(monkeypatch, RING)
    outcome, found = served([645, 646, 647, 648], check=check)
    layers = [f"model.layers.{number}.self_attn.{RING}" for number in (3, 7)]
    assert [(f.request_id, f.layer, tokens(f), f.found) for f in found] == [
        (request_id, layer, missed, "zeros")
        for request_id, missed in (
            ("req-1-d0", (644, 644)),
            ("req-2-d0", (644, 645)),
            ("req-3-d0", (644, 646)),
        )
        for layer in layers
    ]
    wrong_outputs = {v.request_id for v in outcome.violations if v.oracle == "same-output"}
    assert wrong_outputs >= {"req-1", "req-2", "req-3"}
    assert "req-0" not in wrong_outputs


def test_an_indexer_that_is_left_out_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry of a complete group, and nothing of the others."""
    leave_out(monkeypatch, INDEXER)
    _, found = served([647])
    assert [(f.layer, tokens(f), f.found) for f in found] == [
        (f"model.layers.{number}.self_attn.{INDEXER}", (0, 643), "zeros") for number in (3, 7)
    ]


def test_the_bytes_of_another_request_are_traced_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every kind of cache: latent, entry of several tokens, ring, state."""
    load: Callable[..., bool] = back_door.BackDoor.load

    def mixed_up(self: Any, number: int, placements: Any) -> bool:
        return load(self, 1, placements)  # whatever is asked for, the first request's

    monkeypatch.setattr(back_door.BackDoor, "load", mixed_up)
    monkeypatch.setattr(back_door.BackDoor, "request_ended", lambda *args: None)
    _, found = served([647, 647])
    assert {f.request_id for f in found} == {"req-1-d0"}
    assert {f.owner for f in found} == {"req-0"}
    kinds: dict[str, set[tuple[int, int]]] = {}
    for f in found:
        kinds.setdefault(f.layer.partition("self_attn")[2], set()).add(tokens(f))
    assert kinds == {
        ".attn": {(0, 645)},
        f".{INDEXER}": {(0, 639), (640, 643)},
        f".{RING}": {(644, 645)},
        "": {(645, 645)},
    }


def test_the_odd_row_of_a_hand_off_is_in_the_ring_or_in_an_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer makes the drafter's last row from the token that it sampled. That row is judged
    by itself: if nobody knew of it, it would count as wrong, in the latent cache and where its
    group is: in the ring, or in an entry if it ends the group."""
    lengths = [645, 646, 647, 648]
    outcome, found = served(lengths, model="glm-flash")
    assert (outcome.violations, found) == ([], [])
    monkeypatch.setattr(HandOffs, "was_cut", lambda *args: False)
    _, found = served(lengths, model="glm-flash")
    drafter = "model.layers.9.self_attn"
    for number, length in enumerate(lengths):
        row = length - 2
        mine = [f for f in found if f.request_id == f"req-{number}-d0"]
        assert {f.layer.removeprefix(drafter) for f in mine if f.last_token == row} == {
            ".attn",
            f".{INDEXER if row % 4 == 3 else RING}",
        }
        assert {f.last_token for f in mine} == {row}
