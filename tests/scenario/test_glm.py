"""Models with a pooling indexer and its ring: what test_variants.py does not ask of all models."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from variants import has_rings

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from sim.model.presets import PRESETS, get_preset
from sim.outcome import Outcome
from sim.run import run
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    UniformWorkload,
    Workload,
    with_settings,
)
from sim.workload import Segment

MODELS = [name for name, preset in PRESETS.items() if has_rings(preset)]
every_model = pytest.mark.parametrize("model", MODELS)
SHARED = GeneratedWorkload(requests=8, length_scale=0.2, rate_rps=40, shared_prefix_share=0.6)
# No chunk but a prompt's first begins where a group does, and none ends where a block does.
CHUNKS: list[dict[str, str]] = [
    {"max_num_batched_tokens": "251"},
    {"max_num_batched_tokens": "251", "enable_prefix_caching": "false", "check": "full"},
    {"max_num_batched_tokens": "1001", "enable_prefix_caching": "false"},
]


def colocated(model: str, workload: Workload, settings: dict[str, str]) -> Scenario:
    scenario = Scenario(model=model, workload=workload, topology=Topology(colocated=True))
    return with_settings(scenario, settings)


def check(scenario: Scenario) -> Outcome:
    outcome = run(scenario).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    return outcome


@every_model
@pytest.mark.parametrize("settings", CHUNKS, ids=str)
def test_chunks_may_begin_and_end_anywhere(model: str, settings: dict[str, str]) -> None:
    """What a chunk leaves in the ring is what the next one completes a group with."""
    check(colocated(model, SHARED, settings))


@every_model
@pytest.mark.parametrize("batching", ["one-by-one", "together"])
def test_prompts_and_outputs_may_end_anywhere_in_a_group(model: str, batching: str) -> None:
    """Every remainder of a group and of a ring, at the begin of a block, of the next and within."""
    indexer = get_preset(model).sizes("reduced").indexer
    assert indexer is not None
    group, block = indexer.tokens_per_entry, get_preset(model).tokens_per_block()
    lengths = [
        start + remainder
        for start in (0, block - group, block)
        for remainder in range(1, 2 * group + 1)
    ]
    interval_s = {"one-by-one": 0.2, "together": 0.0}[batching]
    requests = tuple(
        InlineRequest(
            f"{length}-tokens-{n}", (Segment(n, length),), group + 2, arrival_s=interval_s * n
        )
        for n, length in enumerate(lengths)
    )
    check(colocated(model, InlineWorkload(requests), {}))


def test_a_long_prompt_fits() -> None:
    """126,000 tokens in reduced geometry, in chunks that are no multiple of a group or block."""
    request = InlineRequest("long", (Segment(1, 126_001),), 6)
    scenario = colocated("glm-flash-nospec", InlineWorkload((request,)), {})
    check(with_settings(scenario, {"max_num_batched_tokens": "8190"}))


def test_real_geometry() -> None:
    """The model's true dimensions, for a short run on eight ranks."""
    workload = UniformWorkload(
        requests=2, prompt_tokens=(640, 650), output_tokens=(3, 5), interval_ms=50.0
    )
    settings = {"tp_size": "8", "executor": "multi-process", "num_blocks": "30"}
    scenario = colocated("glm-flash-nospec", workload, settings)
    check(msgspec.structs.replace(scenario, geometry="real"))


@every_model
def test_vllms_moriio_connector_refuses_the_model_at_start_up(
    model: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message is vLLM's own, and nothing is run."""
    monkeypatch.chdir(tmp_path)
    assert dispatch.run(["run", "--model", model, "--requests", "2"]) == ExitCode.BAD_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    message = " ".join(captured.err.split())
    assert "engine p0 refused to start: MoRIIOError: MoRIIO hybrid READ requires exactly" in message
    assert "one transferable attention group, got 2" in message
