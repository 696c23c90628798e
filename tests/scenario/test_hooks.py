"""When vLLM's two model runners call a connector, and for which layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.run import run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, UniformWorkload, with_settings
from sim.workload import Segment

LAYERS = [f"model.layers.{i}.self_attn.attn" for i in range(4)]


@pytest.fixture(autouse=True)
def _recorder_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def hooks(actor: str, **settings: str) -> list[str]:
    """What the connector of one engine said of its first step, one prompt of 40 tokens."""
    request = InlineRequest("a", (Segment(1, 40),), max_tokens=1)
    plain = Scenario(
        connector="hook_recorder:HookRecorder",
        workload=InlineWorkload((request,)),
        quiet_phase_s=0.0,
    )
    log = run(with_settings(plain, settings)).log
    said = [
        str(record.fields["message"]).removeprefix("hook ")
        for record in log.records
        if record.actor.startswith(actor) and str(record.fields.get("message")).startswith("hook ")
    ]
    first = next(i for i, what in enumerate(said) if what.startswith("wait_for_layer_load"))
    begin = max(i for i, what in enumerate(said[:first]) if what == "handle_preemptions")
    return said[begin : said.index("get_finished", first) + 1]


def layer_hooks(layers: list[str], num_tokens: int = 40, slot: int = 16) -> list[str]:
    return [
        what
        for layer in layers
        for what in (
            f"wait_for_layer_load {layer}",
            f"save_kv_layer {layer} {num_tokens} tokens from slot {slot}",
        )
    ]


def test_v2_calls_them_as_it_does() -> None:
    """The load after the forward, as nothing is loaded before it; results after sampling."""
    assert hooks("p0") == [
        "handle_preemptions",
        *layer_hooks(LAYERS),
        "finish_forward",
        "start_load_kv after it",
        "wait_for_save",
        "get_finished",
    ]


def test_v1_calls_them_as_it_does() -> None:
    """Without finish_forward, and with the forward context of the pass throughout."""
    assert hooks("p0", model_runner="v1") == [
        "handle_preemptions",
        *layer_hooks(LAYERS),
        "start_load_kv before the forward",  # its metadata is still there
        "wait_for_save",
        "get_finished",
    ]


@pytest.mark.parametrize("model_runner", ["v2", "v1"])
def test_a_synchronous_load_precedes_the_forward(model_runner: str) -> None:
    """Both runners; one token is left to compute."""
    said = hooks("d0", model_runner=model_runner, extra_config="{sync_loads: true}")
    assert said[:2] == ["handle_preemptions", "start_load_kv before the forward"]
    assert said[2:10] == layer_hooks(LAYERS, num_tokens=1, slot=16 + 39)


def test_recurrent_layers_have_no_hooks() -> None:
    """Of a hybrid model the attention layers only, in their order."""
    said = hooks("p0", model="kimi-linear")
    layers = [what.split()[1] for what in said if what.startswith("save_kv_layer")]
    assert layers == sorted(layers, key=lambda layer: int(layer.split(".")[2]))
    assert layers
    assert all(layer.endswith(".attn") for layer in layers)


@pytest.mark.parametrize("mode", ["true", "false"])
def test_preempted_requests_come_back_with_the_v1_runner(mode: str) -> None:
    """vLLM sends them as known ones there, with all of their blocks and tokens."""
    workload = UniformWorkload(
        requests=10, prompt_tokens=(100, 200), output_tokens=(60, 90), interval_ms=5.0
    )
    plain = Scenario(workload=workload, quiet_phase_s=5.0)
    settings = {
        "model_runner": "v1",
        "engine.num_blocks": "60",
        "extra_config": f"{{read_mode: '{mode}'}}",
    }
    result = run(with_settings(plain, settings))
    assert result.outcome.verdict == "pass", result.outcome.violations
    held = [r.fields["request"] for r in result.log.records if r.kind == "blocks-held"]
    freed = [r.fields["request"] for r in result.log.records if r.kind == "blocks-freed"]
    assert len(freed) > len(set(freed)), "nothing was preempted"
    assert set(freed) == set(held)
