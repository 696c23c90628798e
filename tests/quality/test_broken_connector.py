"""A copy of vLLM's connector with a planted defect is noticed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from sim.outcome import Outcome
from sim.run import run
from sim.scenario import Scenario, UniformWorkload, with_settings

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
WORKLOAD = UniformWorkload(requests=4, prompt_tokens=(300, 600), output_tokens=(4, 8))


def with_defect(directory: Path, module: str, right: str, wrong: str) -> Path:
    """An overlay with ``module``, in which one piece of text is replaced."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert right in source, f"{module} no longer has {right!r}"
    path = directory.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text(source.replace(right, wrong))
    return directory


def outcome_of(overlay: Path, **settings: str) -> Outcome:
    plain = Scenario(workload=WORKLOAD, overlay=str(overlay), quiet_phase_s=10.0)
    return run(with_settings(plain, settings)).outcome


@pytest.mark.parametrize("executor", ["single-process", "multi-process"])
def test_a_layer_that_is_sent_before_it_is_computed_is_found(tmp_path: Path, executor: str) -> None:
    """Without the wait for its event, the producer's write thread sends what was there before."""
    overlay = with_defect(
        tmp_path, f"{_V1}.moriio.moriio_engine", "task.event.synchronize()", "pass"
    )
    outcome = outcome_of(overlay, executor=executor, extra_config="{read_mode: 'false'}")
    assert {"wrong-bytes", "same-output"} <= {v.oracle for v in outcome.violations}
    assert outcome.requests["length"] == 4  # and nobody was told


def test_a_connector_that_stores_the_wrong_block_is_found(tmp_path: Path) -> None:
    """In another connector than MoRIIO: what it stores is one block further on."""
    overlay = with_defect(
        tmp_path,
        f"{_V1}.example_connector",
        "block_idxs = slot_mapping // self._block_size\n            offsets",
        "block_idxs = slot_mapping // self._block_size + 1\n            offsets",
    )
    outcome = outcome_of(overlay, connector="example")
    assert {"wrong-bytes", "same-output"} == {v.oracle for v in outcome.violations}


def test_a_layer_that_is_stored_before_it_is_computed_is_found(tmp_path: Path) -> None:
    """Stored from the hook that comes before the layer's kernel."""
    overlay = with_defect(
        tmp_path,
        f"{_V1}.example_connector",
        "    def wait_for_layer_load(self, layer_name: str) -> None:\n",
        "    def wait_for_layer_load(self, layer_name: str) -> None:\n"
        "        from vllm.forward_context import get_forward_context\n"
        "        context = get_forward_context()\n"
        "        layer = context.no_compile_layers[layer_name]\n"
        "        metadata = context.attn_metadata[layer_name]\n"
        "        self.save_now(layer_name, layer.kv_cache, metadata)\n"
        "    def save_kv_layer(self, *args, **kwargs): pass\n"
        "    def _unused(self, layer_name: str) -> None:\n",
    )
    path = overlay.joinpath(*_V1.split("."), "example_connector.py")
    text = path.read_text()
    first, second = text.split("    def save_kv_layer(\n")
    path.write_text(first + "    def save_now(\n" + second)
    outcome = outcome_of(overlay, connector="example")
    assert {"wrong-bytes", "same-output"} == {v.oracle for v in outcome.violations}
