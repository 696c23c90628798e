"""Data-parallel ranks: every shape of producers and consumers, and what ranks do to each other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import vllm

from faults.cli.options import RunOptions, build_scenario
from faults.running import run as run_with_faults
from sim.engine.runner import ModelRunner
from sim.errors import UsageError
from sim.outcome import Outcome
from sim.router import router
from sim.run import TestBed, run
from sim.scenario import GeneratedWorkload, Scenario, UniformWorkload, with_settings
from sim.units import MS, SECOND

SHARED = GeneratedWorkload(requests=8, length_scale=0.05, rate_rps=40, shared_prefix_share=0.6)
OUTPUT_TOKENS = 8
TWO = UniformWorkload(
    requests=2,
    prompt_tokens=(300, 300),
    output_tokens=(OUTPUT_TOKENS, OUTPUT_TOKENS),
    interval_ms=1000.0,
)
TWO_AT_ONCE = msgspec.structs.replace(
    TWO, prompt_tokens=(20, 20), output_tokens=(2, 2), interval_ms=0.0
)
SHAPES = {
    "2 to 1": {"engine.data_parallel_size": "2", "topology.consumer_data_parallel_size": "1"},
    "1 to 2": {"topology.consumer_data_parallel_size": "2"},
    "2 to 2": {"engine.data_parallel_size": "2"},
}
VARIANTS = {
    "single-process": {},
    "multi-process": {"executor": "multi-process"},
    "synchronous": {"async_scheduling": "false"},
    "perturbed": {"perturb": "true", "seed": "5"},
}


def scenario(workload: Any = SHARED, **settings: str) -> Scenario:
    return with_settings(Scenario(model="deepseek-mla", workload=workload), settings)


def clean(scenario: Scenario, **kwargs: Any) -> Outcome:
    outcome = run(scenario, **kwargs).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]
    return outcome


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_rank_hands_over_to_any_rank(shape: str, variant: str) -> None:
    """The consumer's rank reads from the producer's rank that has the prompt, and releases it."""
    result = run(scenario(**SHAPES[shape], **VARIANTS[variant]))
    assert result.outcome.violations == []
    assert result.outcome.requests["length"] == result.outcome.requests["total"]
    served = {r.fields["node"] for r in result.log.records if r.kind == "leg-sent"}
    started = {r.fields["node"] for r in result.log.records if r.kind == "engine-started"}
    assert served == started


def test_a_consumer_that_is_not_told_the_rank_reads_another_ones_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without ``remote_dp_rank`` the connector takes rank 0, which has other prompts."""
    original = router.decode_params

    def decode_params(returned: Any, **kwargs: Any) -> Any:
        params = original(returned, **kwargs)
        del params["remote_dp_rank"]
        return params

    monkeypatch.setattr(router, "decode_params", decode_params)
    outcome = run(scenario(**SHAPES["2 to 1"], quiet_phase_s="2")).outcome
    assert {"wrong-bytes", "same-output"} <= {v.oracle for v in outcome.violations}


def test_a_rank_without_work_takes_part_in_every_pass() -> None:
    """Ranks of a mixture of experts run in lock-step until all of them are idle."""
    passes: list[list[int]] = []
    are_running: list[list[bool]] = []

    def prepare(bed: TestBed) -> None:
        def note(record: Any) -> None:
            if record.kind == "request-arrived" and record.time_ns > SECOND // 2:
                are_running.append([rank.loop.engines_running for rank in bed.consumers])
            if record.kind == "request-ended":
                passes.append([rank.workers[0].runner._passes for rank in bed.consumers])

        bed.kernel.log.subscribe(note)

    clean(scenario(TWO, **SHAPES["1 to 2"]), prepare=prepare)
    first, second, *_epilogues = passes
    assert min(first) >= OUTPUT_TOKENS
    assert min(second) >= 2 * OUTPUT_TOKENS
    assert all(abs(one - other) <= 1 for one, other in passes)
    assert are_running[0] == [False, False]


def test_dummy_passes_do_not_pile_up_behind_a_load_that_takes_long() -> None:
    """While all ranks wait for loads, the host could launch dummies faster than the device runs
    them. Loads of later requests would wait for all of these, long after the network is back."""
    deepest: list[int] = []

    def prepare(bed: TestBed) -> None:
        def note(record: Any) -> None:
            if record.kind == "receiving-finished":
                streams = [rank.workers[0].stream for rank in bed.consumers]
                deepest.append(max(stream.position - stream._completed for stream in streams))

        bed.kernel.log.subscribe(note)

    down = {"kind": "link-down", "when": {"phase": "queued_at_d"}}
    settings = {"connector": "hybrid", "extra_config.transfer_timeout": "1", **SHAPES["2 to 2"]}
    faulted = msgspec.structs.replace(scenario(TWO_AT_ONCE, **settings), faults=[down])
    outcome = run_with_faults(faulted, prepare=prepare).result.outcome
    assert outcome.requests["error"] == 2  # their loads timed out
    assert outcome.violations == []
    assert max(deepest) <= 3


def test_a_rank_that_dies_takes_its_instance_with_it() -> None:
    """vLLM's front end gives up when one of its engine cores is gone; both come back."""

    def prepare(bed: TestBed) -> None:
        bed.kernel.call_later(60 * MS, bed.consumers[1].crash)

    result = run(scenario(**SHAPES["1 to 2"], quiet_phase_s="2"), prepare=prepare)
    died = [r.fields["node"] for r in result.log.records if r.kind == "engine-died"]
    assert died == ["d0-dp1", "d0-dp0"]
    assert result.outcome.requests["engine-died"] > 0
    assert not [v for v in result.outcome.violations if v.oracle in ("wrong-bytes", "same-output")]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_rank_writes_to_any_rank(shape: str) -> None:
    """In WRITE mode each leg of a pair is told the other's rank before it begins."""
    clean(scenario(**SHAPES[shape], **{"extra_config.read_mode": "false"}))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("model", ["deepseek-mla", "glm-flash"])
def test_ranks_speculate_together(model: str, variant: str) -> None:
    """A rank without work takes part in the drafter's passes, too."""
    settings = {
        "connector": "hybrid",
        "speculation": "{method: mtp, num_speculative_tokens: 2}",
        "draft_us": "0",
        **SHAPES["2 to 2"],
        **VARIANTS[variant],
    }
    beds: list[TestBed] = []
    base = Scenario(model=model, workload=SHARED)
    outcome = clean(with_settings(base, settings), prepare=beds.append)
    assert outcome.speculation is not None
    assert outcome.speculation.accepted > 0
    for ranks in (beds[0].producers, beds[0].consumers):
        passes = [rank.workers[0].runner._passes for rank in ranks]
        assert len(set(passes)) == 1
        assert passes[0] > 0


def test_ranks_skip_drafts_only_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose requests need no drafts makes them nevertheless, unless no other needs them.
    The drafter is told the sizes of the model's pass, on which vLLM's ranks agreed once."""
    seen: dict[tuple[str, int], list[tuple[list[int], int]]] = {}
    could_skip: list[tuple[bool, int]] = []
    execute_model, run_drafter = ModelRunner.execute_model, ModelRunner._run_drafter

    def execute(self: ModelRunner, scheduler_output: Any) -> Any:
        result = execute_model(self, scheduler_output)
        if self._pending is not None:
            could_skip.append((scheduler_output.skip_drafts, self._pending.num_drafts))
        return result

    def drafter(self: ModelRunner, batch: Any, pending: Any) -> None:
        assert self.model.drafter is not None
        instance = self.model.drafter.groups[0]._engine.group.name
        told = pending.across_ranks.num_tokens.tolist()
        seen.setdefault((instance, self._passes), []).append((told, pending.num_drafts))
        run_drafter(self, batch, pending)

    monkeypatch.setattr(ModelRunner, "execute_model", execute)
    monkeypatch.setattr(ModelRunner, "_run_drafter", drafter)
    settings = {"speculation": "{method: mtp, num_speculative_tokens: 2}", "draft_us": "0"}
    clean(scenario(**settings, **SHAPES["2 to 2"], max_num_batched_tokens="256"))
    both = [answers for answers in seen.values() if len(answers) == 2]
    assert both
    assert all(one == other for one, other in both)
    assert {drafts for can_skip, drafts in could_skip if can_skip} == {0, 2}
    assert {drafts for can_skip, drafts in could_skip if not can_skip} == {2}


# -------------------------------------------------- what does not start in vLLM 0.33.0


@pytest.mark.parametrize(
    ("name", "thread", "port"),
    [
        ("dense-data-parallel", "p0-dp1/core", 6301),
        ("data-and-tensor-parallel", "p0-dp1/rank0", 6302),
    ],
)
def test_ranks_that_want_the_same_port_never_start(name: str, thread: str, port: int) -> None:
    """The handshake thread dies of it, and the worker waits for that thread for ever."""
    with pytest.raises(UsageError) as refusal:
        run(build_scenario(RunOptions(scenario=name)))
    message = str(refusal.value)
    assert "engine p0-dp1 did not start" in message
    assert f"{thread}/moriio_handshake_listener ended with ZMQError: Address" in message
    assert f"already in use (addr='tcp://*:{port}')" in message
    assert "waits for set() of Event" in message
    assert "MoRIIOConnectorWorker.register_kv_caches" in message
    is_dense = name == "dense-data-parallel"
    assert ("every data-parallel rank of a dense model" in message) == is_dense


def test_with_ports_for_all_ranks_data_and_tensor_parallelism_work_together(
    tmp_path: Path,
) -> None:
    """The side that dials counts with the tensor-parallel size; here the listener does, too."""
    package = Path("distributed/kv_transfer/kv_connector/v1/moriio")
    there = tmp_path / "vllm" / package
    shutil.copytree(Path(vllm.__file__).parent / package, there)
    _replace(there / "moriio_common.py", "get_port_offset(dp_rank, tp_rank)", "tp_size")
    _replace(there / "moriio_connector.py", "get_port_offset(self.dp_rank, self.tp_rank)", "tp")
    options = RunOptions(scenario="data-and-tensor-parallel", overlay=tmp_path)
    clean(build_scenario(options))


def _replace(path: Path, call: str, size: str) -> None:
    size = {"tp": "self.moriio_config.tp_size"}.get(size, size)
    text = path.read_text(encoding="utf-8")
    assert text.count(call) == 1
    path.write_text(text.replace(call, f"{call[:-1]}, {size})"), encoding="utf-8")
