"""Runs of load that look good and are no evidence: what is not shown, and who is not meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engines import FakeEngine
from load_phases import seen_as, undisturbed

from hw_tests.identity import Identity, refuse_strangers, unknown
from hw_tests.load.page import lines, page
from hw_tests.load.run import Phase, outcome_of
from hw_tests.outcome import NO_DRAFTS

Change = Callable[[list[FakeEngine]], object]


@pytest.mark.parametrize("name", ["loads", "failed_loads", "verified_loads"])
def test_loads_that_are_not_counted_are_a_failure(name: str, tmp_path: Path) -> None:
    """They are not nought: nobody knows them."""
    found = asyncio.run(undisturbed(tmp_path, leaves_out=f"hybrid_read_{name}_total"))
    assert found["outcome"] == "FAIL"
    assert any("does not count loads" in seen for _, seen in seen_as(found, False))


@pytest.mark.parametrize(
    "name", ["num_requests_running", "num_requests_waiting", "hybrid_read_held_leases"]
)
def test_what_does_not_tell_that_it_is_idle_is_not(name: str, tmp_path: Path) -> None:
    found = asyncio.run(undisturbed(tmp_path, leaves_out=name))
    assert found["outcome"] == "FAIL"
    assert any(f"/metrics has no vllm:{name}" in seen for _, seen in seen_as(found, False))


def test_metrics_of_something_else_are_a_failure(tmp_path: Path) -> None:
    """As a control's that shows none of vLLM, of which no loads would be told either."""

    def change(engines: list[FakeEngine]) -> None:
        engines[2].metrics = lambda _requests: "node_load1 0.5\n"

    found = asyncio.run(undisturbed(tmp_path, change=change))
    assert found["outcome"] == "FAIL"
    assert any("has nothing of vLLM" in seen for _, seen in seen_as(found, False))


def test_a_run_without_drafts_says_so(tmp_path: Path) -> None:
    """Neither a pass nor a failure, unless it was said, which is then in the verdict."""
    found = asyncio.run(undisturbed(tmp_path, has_drafts=False))
    assert found["outcome"] == "INCOMPLETE"
    found |= {"registered": {"passed": True, "said": "alike", "rows": []}}
    said = "\n".join(lines(found))
    why = "router no drafts, control no drafts; if engines do not speculate, say --no-drafts"
    assert f"??   drafts are accepted as often as the control's: {why}" in said
    whole = page({**found, "boot": {}, "files": {}}, "digest")
    for each in (said, whole.replace("&#x27;", "'")):
        assert "INCOMPLETE: undisturbed: drafts are accepted as often as the control's: " in each
    found = asyncio.run(undisturbed(tmp_path, has_drafts=False, no_drafts=True))
    assert (found["outcome"], found["caveats"]) == ("pass", [NO_DRAFTS])
    found = asyncio.run(undisturbed(tmp_path, no_drafts=True))
    assert found["outcome"] == "FAIL"


def other(engine: int, **card: str) -> Change:
    """One of prefill, decode and control serves something else."""
    return lambda engines: engines[engine].card.update(card)


@pytest.mark.parametrize("engine", range(3))
@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"id": "b-model"}, "the served name differs: .*b-model"),
        ({"root": "/models/b-model/"}, "the model differs: .*b-model"),
    ],
)
def test_an_engine_of_another_model_is_found_out(
    engine: int, card: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Control, decode or prefill: by the name that it serves, and by what is behind that."""
    with pytest.raises(ValueError, match=f"{said} of {('prefill', 'decode', 'control')[engine]}"):
        asyncio.run(undisturbed(tmp_path, change=other(engine, **card)))


def test_a_control_of_another_version_is_found_out(tmp_path: Path) -> None:
    def change(engines: list[FakeEngine]) -> None:
        engines[2].version = "0.34.0"

    with pytest.raises(ValueError, match=r"version differs: .*, 0.34.0 of control"):
        asyncio.run(undisturbed(tmp_path, change=change))


def test_what_an_engine_does_not_tell_of_itself_is_told(tmp_path: Path) -> None:
    """In the evidence and the verdict; the same model elsewhere is the same."""

    def change(engines: list[FakeEngine]) -> None:
        engines[2].version = None
        engines[1].card["root"] = "elsewhere/a-model/"

    found = asyncio.run(undisturbed(tmp_path, change=change))
    assert found["outcome"] == "pass"
    assert found["engines"]["prefill"] == {
        "model": "a-model", "root": "a-model", "version": "0.33.0"
    }  # fmt: skip
    assert found["caveats"] == ["model or version not told by control"]


def test_engines_are_compared_by_all_that_they_tell() -> None:
    one = Identity("m", "m", "1")
    refuse_strangers({"a": one, "b": one._replace(root=None), "c": one})
    assert unknown({"a": one, "b": one._replace(root=None)}) == ["model or version not told by b"]
    with pytest.raises(ValueError, match="the model differs"):
        refuse_strangers({"a": one, "b": one._replace(root=None), "c": one._replace(root="n")})


def test_a_run_of_nothing_is_a_failure() -> None:
    """Without a phase, or with one that looked at nothing."""
    assert outcome_of([], None) == outcome_of([Phase("empty")], None) == "FAIL"
