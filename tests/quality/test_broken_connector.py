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
