"""How often a connector makes the host wait for the device, counted in the simulated device."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from variants import shared

from sim.device import Stream
from sim.kernel.frames import is_guest, module_of, original_name
from sim.model.presets import PRESETS
from sim.run import rehearse, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings

Waits = Counter[tuple[str, str]]
"""By engine and by the method of the connector that waits."""


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Counts what waits for a stream: ``synchronize`` of it and of events, copies to the host."""
    counted: Waits = Counter()
    original = Stream.wait_until

    def wait_until(self: Stream, position: int) -> None:
        method = _connector_method(sys._getframe(1))
        if method is not None:
            counted[self.process.path.partition("/")[0], method] += 1
        original(self, position)

    monkeypatch.setattr(Stream, "wait_until", wait_until)
    return counted


def _connector_method(frame: FrameType | None) -> str | None:
    """The innermost function of a connector that is being executed, if one is."""
    while frame is not None:
        if is_guest(frame) and not original_name(module_of(frame)).startswith("vllm.v1.worker"):
            return frame.f_code.co_name
        frame = frame.f_back
    return None


def serve(model: str, connector: str, settings: dict[str, str]) -> Any:
    scenario = with_settings(
        Scenario(model=model, workload=shared(PRESETS[model])), {"connector": connector, **settings}
    )
    return run(scenario).outcome


@pytest.mark.requirement("R14")
@pytest.mark.parametrize("model", ["llama", "gemma-swa", "deepseek-mla"])
def test_without_states_or_drafts_nobody_waits_for_a_device(model: str, waits: Waits) -> None:
    """Neither does upstream in the same scenario."""
    for connector in ("moriio", "hybrid"):
        serve(model, connector, {})
    assert waits == {}


@pytest.mark.requirement("R14", "R19")
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("kimi-linear", {}),
        ("qwen-hybrid", {}),
        ("deepseek-mla", {"speculation.method": "mtp"}),
        ("kimi-linear", {"speculation.method": "dspark"}),
    ],
)
def test_only_a_producer_that_writes_after_sampling_waits(
    model: str, settings: dict[str, str], waits: Waits
) -> None:
    """Before the output of a step that may hand over, once a step; a consumer never waits, and
    upstream on neither side, which is why it hands over what is not written yet."""
    serve(model, "moriio", settings)
    assert waits == {}
    outcome = serve(model, "hybrid", settings)
    assert set(waits) == {("p0", "wait_for_save")}
    assert waits["p0", "wait_for_save"] <= outcome.engine_steps


@pytest.mark.requirement("R19")
def test_a_prompt_in_chunks_is_waited_for_once(waits: Waits) -> None:
    """With its last chunk: what earlier ones write is done on the device by then."""
    prompts = tuple(InlineRequest(f"r{i}", ((i, 3000),), 4, 10.0 * i) for i in range(2))
    scenario = with_settings(
        Scenario(model="qwen-hybrid", connector="hybrid", workload=InlineWorkload(prompts)),
        {"max_num_batched_tokens": "1024"},
    )
    rehearse(scenario)
    waits.clear()
    assert run(scenario).outcome.passed
    # Every run asks a short prompt of its own at its end.
    assert waits == {("p0", "wait_for_save"): len(prompts) + 1}


@pytest.mark.requirement("R14")
def test_a_synchronous_load_waits_for_the_device(waits: Waits) -> None:
    """So the count can see a consumer that waits: vLLM's copies of states are queued before it."""
    serve("kimi-linear", "hybrid", {"extra_config": "{load_mode: sync}"})
    assert waits["d0", "_run_in_step"] > 0
