"""A known finding explains what it is about, and nothing that only looks like it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from known_findings import (
    ABANDONED_HAND_OFF,
    RETRIED_HAND_OFF,
    STATE_COPIED_OVER_READ,
    WHOLE_BLOCKS_TWICE,
    WINDOW_EDGE,
    Finding,
    Run,
    missing,
    unexplained,
)

from sim.oracles import Violation
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.workload import Segment

WINDOWED, GLOBAL = "model.layers.0.self_attn.attn", "model.layers.5.self_attn.attn"
STATE, ATTENTION = "model.layers.0.self_attn", "model.layers.3.self_attn.attn"


def explains(finding: Finding, scenario: Scenario, violation: Violation) -> bool:
    """Whether a run with this violation alone counts as ended in the finding."""
    outcome: Any = SimpleNamespace(violations=[violation])
    run = Run(scenario, outcome)
    is_explained = not unexplained(run, [finding])
    assert is_explained == (missing(run, [finding]) == [])
    return is_explained


def serving(model: str, *prompts: int, **settings: str) -> Scenario:
    """Requests ``req-0``, …: beginnings of the same text, of these numbers of tokens."""
    requests = tuple(
        InlineRequest(f"req-{number}", (Segment(1, tokens),), 4)
        for number, tokens in enumerate(prompts)
    )
    return with_settings(Scenario(model=model, workload=InlineWorkload(requests)), settings)


def wrong_bytes(leg: str, layer: str, token: int, *chain: str, **evidence: Any) -> Violation:
    """One token of one layer, wrong for ``leg``; ``extent`` replaces what else was wrong."""
    extent = {"layers": [layer], "tokens": [token, token], "owners": []}
    known = {
        "layer": layer,
        "tokens": [token, token],
        "owner": None,
        "chain": list(chain),
        "extent": {**extent, **evidence.pop("extent", {})},
    }
    node = "p0" if "-p" in leg else "d0"
    return Violation("wrong-bytes", 1.0, node, leg, "", {**known, **evidence})


def landed(at_s: float, holder: str, *, free: bool = False) -> tuple[str, str]:
    """The part of a chain that tells of the last transfer, as the oracle writes it."""
    was = "was free, and before that held by" if free else "was held by"
    return (
        f"the last transfer into it, 7, copied block 3 of p0 at {at_s:.6f} s",
        f"block 3 of p0 {was} {holder} then",
    )


def copied(at_s: float, leg: str) -> str:
    """The part of a chain that tells of a state copy, as the engine writes it."""
    return (
        f"block 9 was last written at {at_s:.6f} s by the state copy from block 8 for {leg} on d0"
    )


# ----------------------------------------------------------------- window-edge


@pytest.mark.parametrize(
    ("is_it", "violation"),
    [
        (True, wrong_bytes("req-0-d0", WINDOWED, 15)),
        (True, wrong_bytes("req-0-d0", WINDOWED, 15, *landed(0.5, "req-1-p0"))),
        (False, wrong_bytes("req-0-d0", WINDOWED, 14)),
        (False, wrong_bytes("req-0-d0", GLOBAL, 15)),
        (False, wrong_bytes("req-0-d0", WINDOWED, 15, extent={"layers": [WINDOWED, GLOBAL]})),
        (False, wrong_bytes("req-0-d0", WINDOWED, 15, extent={"tokens": [15, 16]})),
        (False, wrong_bytes("req-0-d0", WINDOWED, 15, *landed(0.5, "req-0-p0"))),
        (False, wrong_bytes("req-0-p0", WINDOWED, 15)),
        (False, wrong_bytes("req-1-d0", WINDOWED, 16)),
    ],
)
def test_the_edge_of_a_window(is_it: bool, violation: Violation) -> None:
    """Of a layer with that window, on a consumer, where nothing of the request has landed."""
    assert explains(WINDOW_EDGE, serving("gemma-swa", 79, 80), violation) is is_it


# ----------------------------------------------------- states after whole blocks

OVERWRITTEN = (copied(0.6, "req-0-d0"), *landed(0.5, "req-0-p0"))


@pytest.mark.parametrize(
    ("is_it", "violation"),
    [
        (True, wrong_bytes("req-0-d0", STATE, 127, *OVERWRITTEN)),
        (False, wrong_bytes("req-0-d0", STATE, 126, *OVERWRITTEN)),
        (False, wrong_bytes("req-0-d0", ATTENTION, 127, *OVERWRITTEN)),
        (False, wrong_bytes("req-0-d0", STATE, 127, *OVERWRITTEN, extent={"layers": [ATTENTION]})),
        (False, wrong_bytes("req-0-p0", STATE, 127, *OVERWRITTEN)),
        (False, wrong_bytes("req-0-d0", STATE, 127, *landed(0.5, "req-0-p0"))),
        (False, wrong_bytes("req-0-d0", STATE, 127, copied(0.6, "req-0-d0"))),
        (
            False,
            wrong_bytes("req-0-d0", STATE, 127, copied(0.6, "req-1-d0"), *landed(0.5, "req-0-p0")),
        ),
        (
            False,
            wrong_bytes("req-0-d0", STATE, 127, copied(0.4, "req-0-d0"), *landed(0.5, "req-0-p0")),
        ),
        (
            False,
            wrong_bytes("req-0-d0", STATE, 127, copied(0.6, "req-0-d0"), *landed(0.5, "req-1-p0")),
        ),
    ],
)
def test_a_state_copied_over_a_read(is_it: bool, violation: Violation) -> None:
    """A state on a consumer, where the request's own had landed before its own copy."""
    scenario = serving("kimi-linear", 129, async_scheduling="true")
    assert explains(STATE_COPIED_OVER_READ, scenario, violation) is is_it
    synchronous = with_settings(scenario, {"async_scheduling": "false"})
    assert not explains(STATE_COPIED_OVER_READ, synchronous, violation)


TAKEN_EARLY = (copied(0.4, "req-1-d0"), *landed(0.5, "req-1-p0"))


@pytest.mark.parametrize(
    ("is_it", "violation"),
    [
        (True, wrong_bytes("req-1-d0", STATE, 127, *TAKEN_EARLY)),
        (True, wrong_bytes("req-1-d0", STATE, 127, copied(0.4, "req-1-d0"))),
        (False, wrong_bytes("req-1-d0", STATE, 127)),
        (False, wrong_bytes("req-1-d0", STATE, 127, *landed(0.5, "req-1-p0"))),
        (False, wrong_bytes("req-1-d0", ATTENTION, 127, *TAKEN_EARLY)),
        (False, wrong_bytes("req-1-d0", STATE, 127, *TAKEN_EARLY, extent={"tokens": [127, 128]})),
        (False, wrong_bytes("req-1-p0", STATE, 127, *TAKEN_EARLY)),
        (False, wrong_bytes("req-0-d0", STATE, 127, copied(0.4, "req-0-d0"))),
        (
            False,
            wrong_bytes("req-1-d0", STATE, 127, copied(0.6, "req-1-d0"), *landed(0.5, "req-1-p0")),
        ),
    ],
)
def test_whole_blocks_twice(is_it: bool, violation: Violation) -> None:
    """The state of the second request, taken by its copy before the read landed."""
    scenario = serving("kimi-linear", 129, 129)
    assert explains(WHOLE_BLOCKS_TWICE, scenario, violation) is is_it


# ---------------------------------------------------------- abandoned hand-offs


def leak(node: str, *held: tuple[str, int], lost: int = 0) -> Violation:
    """Blocks not free at rest: those of these legs, and ``lost`` ones of nobody."""
    detail = ", ".join(f"{leg} (ended) holds {count} since 0.06 s" for leg, count in held)
    evidence = {
        "free": 100 - sum(count for _, count in held) - lost,
        "idle": 100,
        "requests": {leg: "ended" for leg, _ in held},
    }
    return Violation("leak", 1.0, node, None, f"{node} at rest: {detail}", evidence)


def never_released(leg: str, kind: str = "never-released") -> Violation:
    return Violation("release-once", 1.0, "p0", leg, "", {"kind": kind, "ranks": [0]})


@pytest.mark.parametrize(
    ("is_it", "violation"),
    [
        (True, leak("p0", ("req-0-p0", 15))),
        (True, never_released("req-0-p0")),
        (False, leak("d0", lost=3)),
        (False, leak("p0", lost=3)),
        (False, leak("p0", ("req-0-p0", 15), lost=3)),
        (False, leak("d0", ("req-0-d0", 15))),
        (False, leak("p0", ("req-0-p0", 15), ("req-1-p0", 2))),
        (False, never_released("req-1-p0")),
        (False, never_released("req-0-d0")),
        (False, never_released("req-0-p0", "released-twice")),
    ],
)
def test_an_abandoned_hand_off(is_it: bool, violation: Violation) -> None:
    """Blocks that the prefill leg of such a request holds, not lost ones or a consumer's."""
    aborts = "[{request: req-0, on_phase: handoff}]"
    settings = {"router.aborts": aborts, "executor": "single-process"}
    scenario = with_settings(serving("llama", 235, 235), settings)
    assert explains(ABANDONED_HAND_OFF, scenario, violation) is is_it


# ------------------------------------------------------------ retried hand-offs

FOREIGN = landed(0.2, "req-1-p0", free=True)


@pytest.mark.parametrize(
    ("is_it", "violation"),
    [
        (True, wrong_bytes("req-0-d1", ATTENTION, 53, *FOREIGN)),
        (True, wrong_bytes("req-0-d0", ATTENTION, 53, *FOREIGN, owner="req-1")),
        (True, wrong_bytes("req-0-d1", ATTENTION, 53, *landed(0.2, "req-1-p0"))),
        (False, wrong_bytes("req-0-d0", ATTENTION, 53, *landed(0.05, "req-0-p0"))),
        (False, wrong_bytes("req-0-d1", ATTENTION, 53, *landed(0.2, "req-0-p0", free=True))),
        (False, wrong_bytes("req-0-d1", ATTENTION, 53, *landed(0.05, "req-1-p0", free=True))),
        (False, wrong_bytes("req-0-d1", ATTENTION, 53, *FOREIGN, owner="req-0")),
        (False, wrong_bytes("req-0-d1", ATTENTION, 53, *FOREIGN, extent={"owners": ["req-0"]})),
        (False, wrong_bytes("req-0-d1", ATTENTION, 53)),
        (False, wrong_bytes("req-0-p0", ATTENTION, 53, *FOREIGN)),
        (False, wrong_bytes("req-1-d0", ATTENTION, 53, *landed(0.2, "req-0-p0"))),
    ],
)
def test_a_retried_hand_off(is_it: bool, violation: Violation) -> None:
    """What came to a consumer after the retry, out of blocks that were another request's."""
    retries = {"router.retries": "[{request: req-0, after_s: 0.1}]"}
    scenario = with_settings(serving("llama", 280, 280), retries)
    assert explains(RETRIED_HAND_OFF, scenario, violation) is is_it
    anew = {"router.retries": "[{request: req-0, after_s: 0.1, same_transfer_id: false}]"}
    assert not explains(RETRIED_HAND_OFF, with_settings(scenario, anew), violation)
