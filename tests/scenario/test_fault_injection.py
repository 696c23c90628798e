from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.kinds import KINDS
from faults.running import FaultedRun, run
from faults.schedule import with_faults
from sim.engine.options import EngineOptions
from sim.errors import UsageError
from sim.lifecycle import Lifecycle, Phase
from sim.run import run as run_without_faults
from sim.scenario import InlineWorkload, Scenario, UniformWorkload, with_settings
from sim.scenario.workloads import InlineRequest
from sim.workload import Segment

SMALL = Scenario(
    workload=UniformWorkload(
        requests=4, prompt_tokens=(100, 300), output_tokens=(4, 8), interval_ms=20.0
    ),
    extra_config={"transfer_timeout": 1},
    quiet_phase_s=0.0,
    max_virtual_s=2.0,
)
# What a kind needs to strike in this workload besides its defaults.
NEEDS = {
    "abort": "phase=allocated",
    "bandwidth-reduced": "phase=allocated,nth=2",
    "control-plane-silent": "",
    "crash": "node=d0,phase=allocated",
    "early-hand-off": "phase=prefill",
    "late-landing": "by_s=1.5",
    "link-down": "phase=allocated,nth=2",
    "malformed-message": "phase=prefill",
    "partition": "phase=allocated,for_s=1",
    "pause": "node=p0,phase=prefill,for_s=1",
    "post-refused": "posted=0",
    "queue-pair-error": "phase=read_posted,nth=2",
    "region-invalid": "node=p0,phase=allocated,nth=2",
    "router-hold": "seconds=0.5",
    "router-retry": "phase=decode",
    "several-samples": "phase=prefill",
    "slow-steps": "node=p0,phase=prefill",
    "small-pool": "node=d0,phase=queued_at_d,for_s=1",
    "wall-clock-jump": "node=p0,phase=prefill",
}
# What the scenario of a kind needs, as of --set.
SPECULATING = {
    "model": "deepseek-mla",
    "speculation": "{method: mtp, num_speculative_tokens: 1}",
}
HYBRID = {"connector": "hybrid", "extra_config": "{}"}
SETTINGS = {
    "late-device-writes": SPECULATING,
    "key-stripped": HYBRID,
    "message-key-stripped": HYBRID,
}

TWO = with_settings(SMALL, {"topology.consumers": "2", "workload.interval_ms": "200"})


def faulted(*faults: str, scenario: Scenario = SMALL) -> FaultedRun:
    return run(with_faults(scenario, faults))


def records(result: FaultedRun, kind: str) -> list[dict[str, Any]]:
    return [r.fields for r in result.result.log.records if r.kind == kind]


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.before_start])
def test_every_kind_strikes_and_its_run_replays(kind: str) -> None:
    """It is recorded, healed at the end if it lasts, and the same events come again."""
    fault = f"{kind}:{NEEDS.get(kind, '')}"
    scenario = with_settings(SMALL, SETTINGS.get(kind, {}))
    first = faulted(fault, scenario=scenario)
    assert [(f.kind, f.strikes, f.missed) for f in first.faults] == [(kind, 1, [])]
    assert len(records(first, "fault-struck")) == 1
    assert len(records(first, "fault-hit")) == first.faults[0].hits > 0
    assert sum(first.coverage[kind].values()) > 0
    again = faulted(fault, scenario=scenario)
    assert again.result.outcome.event_hash == first.result.outcome.event_hash


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Phase | None]]:
    """What requests go through in the runs of a test."""
    told: list[tuple[str, Phase | None]] = []
    original = Lifecycle.__init__

    def listening(self: Any, locate: Any, blocks: Any, machines: Any, on_entry: Any) -> None:
        def both(request: str, phase: Phase | None) -> None:
            told.append((request, phase))
            on_entry(request, phase)

        original(self, locate, blocks, machines, both)

    monkeypatch.setattr(Lifecycle, "__init__", listening)
    return told


def test_a_request_goes_through_its_phases_in_order(
    entered: list[tuple[str, Phase | None]],
) -> None:
    """The first to reach a peer shakes hands; both sides of each are followed to the end."""
    faulted("abort:at_s=50")
    expected = [
        *("queued_at_p", "prefill", "handoff", "queued_at_d", "allocated"),
        *("read_posted", "read_in_flight", "read_done", "release", None, "decode", None),
        "finished",
    ]
    assert [phase for request, phase in entered if request == "req-1"] == expected
    first = [phase for request, phase in entered if request == "req-0"]
    assert first == [*expected[:5], "handshake", *expected[5:]]


def test_a_request_that_is_written_goes_through_its_phases_too(
    entered: list[tuple[str, Phase | None]],
) -> None:
    """Both legs are sent at once, so nothing waits for a hand-off; the transfer is over before the
    producer's leg ends, and its blocks go then."""
    faulted("abort:at_s=50", scenario=with_settings(SMALL, {"extra_config.read_mode": "'false'"}))
    phases = [phase for request, phase in entered if request == "req-1"]
    assert phases == [
        *("queued_at_p", "queued_at_d", "prefill", "allocated"),
        *("read_posted", "read_in_flight", "read_done", "release", None, "decode", None),
        "finished",
    ]


def test_a_phase_of_a_request_is_a_trigger() -> None:
    """The third request, in the instant at which its transfer is under way, and nobody else."""
    result = faulted("abort:phase=read_in_flight,nth=3")
    (hit,) = records(result, "fault-hit")
    assert hit["requests"] == {"req-2": ["read_in_flight"]}
    assert result.result.outcome.requests == {
        "total": 4,
        "abort": 1,
        "length": 3,
        "unfinished": 0,
    }


@pytest.mark.parametrize("moment", ["phase=decode", "phase=read_posted", "during=decode"])
@pytest.mark.parametrize(
    ("node", "waited_for"),
    [("d0", "req-0"), ("d1", "req-1"), ("p0", "req-0")],
)
def test_a_phase_counts_of_requests_that_the_target_serves(
    moment: str, node: str, waited_for: str
) -> None:
    """Four requests one after the other, to two consumers in turn: d1 does not decode the first."""
    result = faulted(f"slow-steps:{moment},node={node},factor=1.5,for_s=0.01", scenario=TWO)
    assert records(result, "fault-struck")[0]["request"] == waited_for


def test_a_phase_lasts_for_requests_that_the_target_serves() -> None:
    """req-0 decodes on d0 from before req-1 does on d1 until long after."""
    tokens = {"req-0": 60, "req-1": 2}
    requests = tuple(
        InlineRequest(name, (Segment(number, 100),), count)
        for number, (name, count) in enumerate(tokens.items(), 1)
    )
    scenario = msgspec.structs.replace(TWO, workload=InlineWorkload(requests))
    result = faulted("slow-steps:during=decode,node=d1,factor=1.5", scenario=scenario)
    began, ended = (
        next(r.time_ns for r in result.result.log.records if r.kind == kind)
        for kind in ("fault-struck", "fault-healed")
    )
    answered = {
        r.fields["request"]: r.time_ns
        for r in result.result.log.records
        if r.kind == "request-ended"
    }
    assert began < ended <= answered["req-1"] < answered["req-0"]


def test_a_phase_is_counted_for_the_target_alone() -> None:
    """The second request that d1 decodes is the fourth of all."""
    result = faulted("slow-steps:phase=decode,nth=2,node=d1,factor=1.5,for_s=0.01", scenario=TWO)
    (struck,) = records(result, "fault-struck")
    assert struck["request"] == "req-3"


def test_a_phase_counts_before_the_target_has_the_request() -> None:
    """Nobody knows yet which consumer a prompt that is computed will go to."""
    result = faulted("slow-steps:phase=prefill,node=d1,factor=1.5,for_s=0.01", scenario=TWO)
    (struck,) = records(result, "fault-struck")
    assert struck["request"] == "req-0"


def test_a_phase_counts_of_requests_between_both_ends() -> None:
    """A way that is cut when a read is posted is cut under the first read that takes it."""
    result = faulted("partition:phase=read_posted,node=d1,peer=p0,for_s=0.01", scenario=TWO)
    (struck,) = records(result, "fault-struck")
    assert struck["request"] == "req-1"


def test_a_record_of_the_event_log_is_a_trigger() -> None:
    """At the second answer to a client, when the others are where they are."""
    result = faulted("abort:event=request-ended,nth=2,at_s=0.001")
    struck = next(r for r in result.result.log.records if r.kind == "fault-struck")
    ended = [r for r in result.result.log.records if r.kind == "request-ended"]
    assert struck.time_ns == ended[1].time_ns


def test_a_fault_lasts_as_long_as_a_phase() -> None:
    """It begins whenever somebody is in it and is healed when nobody is any more."""
    result = faulted("small-pool:node=p0,during=decode")
    struck, healed = records(result, "fault-struck"), records(result, "fault-healed")
    assert len(struck) == len(healed) > 1
    assert result.result.outcome.requests["length"] == 4


def test_a_fault_of_a_request_leaves_the_others_alone() -> None:
    """The lost hand-off is that of the request that was named."""
    result = faulted("hand-off-lost:request=req-2")
    assert result.result.outcome.requests["hand-off-lost"] == 1
    assert [phase for phase, n in result.coverage["hand-off-lost"].items() if n] == ["handoff"]


def test_what_lasts_is_healed_before_the_quiet_phase() -> None:
    """A crashed engine is up again and a shrunken pool is whole, so that what follows succeeds."""
    scenario = msgspec.structs.replace(SMALL, quiet_phase_s=30.0)
    result = faulted("crash:node=d0,at_s=0.03", "small-pool:node=p0,at_s=0.5", scenario=scenario)
    kinds = [r.kind for r in result.result.log.records if r.actor == "nemesis"]
    assert kinds.count("fault-healed") == kinds.count("fault-struck") == 1
    missed = result.faults[1]
    assert (missed.strikes, missed.missed) == (0, [])
    ended = {f["request"]: f["outcome"] for f in records(result, "request-ended")}
    assert ended["epilogue"] == "length"


def test_a_fault_that_finds_nobody_says_so() -> None:
    """An engine that is down cannot crash."""
    result = faulted("crash:node=d0,at_s=0.01", "crash:node=d0,at_s=0.02")
    assert [f.missed for f in result.faults] == [[], ["d0 is down"]]


def test_a_rank_that_dies_takes_its_engine_with_it() -> None:
    """As vLLM's executor does when it loses a worker; the other rank lives a moment longer."""
    engine = EngineOptions(tp_size=2, executor="multi-process")
    scenario = msgspec.structs.replace(SMALL, engine=engine)
    result = faulted("crash:node=d0,rank=1,phase=decode", scenario=scenario)
    (died,) = records(result, "engine-died")
    assert (died["node"], died["reason"]) == ("d0", "the process of rank 1 crashed")
    assert died["injected"]
    crashed = [f["process"] for f in records(result, "process-crashed")]
    assert crashed == ["d0/rank1", "d0/core", "d0/rank0"]


@pytest.mark.parametrize(
    "fault", ["registration-fails:node=d0", "disagreement:node=d0,model=nothing-like-it"]
)
def test_an_engine_that_refuses_to_start_is_said_to(fault: str) -> None:
    """It is what a fail-closed connector does, and no failure of the testbed."""
    with pytest.raises(UsageError):
        faulted(fault)


def test_engines_can_be_configured_unlike_each_other() -> None:
    """The consumer runs another model; what it makes of that is for oracles to say."""
    result = faulted("disagreement:node=d0,model=deepseek-mla")
    (hit,) = records(result, "fault-hit")
    assert hit["node"] == "d0"
    started = [f["node"] for f in records(result, "engine-started")]
    assert started == ["p0", "d0"]


def test_engines_that_differ_in_the_block_size_alone_do_not_share_a_byte() -> None:
    """The same model, layers and contents; a connector that is fail-closed serves nothing of it."""
    scenario = with_settings(SMALL, {"connector": "hybrid", "extra_config": "{}"})
    result = faulted("disagreement:node=d0,block_size=32", scenario=scenario)
    assert result.result.outcome.requests["error"] == SMALL.workload.requests
    assert not {v.oracle for v in result.result.outcome.violations} - {"liveness"}
    assert not [r for r in result.result.log.records if r.kind == "landed"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("crash:node=p7", "faults[0] (crash): target.node: there is no 'p7'"),
        ("abort:request=req-9", "target.request: there is no 'req-9'"),
    ],
)
def test_a_fault_aimed_at_nobody_is_refused(fault: str, said: str) -> None:
    """Before anything runs, with the names there are."""
    with pytest.raises(UsageError) as refusal:
        faulted(fault)
    assert said in str(refusal.value)


def test_a_run_that_nobody_injects_into_is_refused() -> None:
    """Rather than pass without the faults that its scenario names."""
    with pytest.raises(UsageError, match="nobody injects them"):
        run_without_faults(with_faults(SMALL, ["abort"]))


def test_an_artifact_brings_its_faults_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line injects them, its JSON tells what they reached, and replay has them too."""
    arguments = ["run", "--requests", "4", "--set", "length_scale=0.02", "--json"]
    out = tmp_path / "run"
    code = dispatch.run([*arguments, "--fault", "abort:phase=decode", "--out", str(out)])
    document = json.loads(capsys.readouterr().out)
    assert code == ExitCode.OK
    assert document["faults"] == [{"kind": "abort", "strikes": 1, "hits": 1, "missed": []}]
    assert document["fault_coverage"]["abort"]["decode"] == 1
    assert document["scenario"]["faults"][0]["when"]["phase"] == "decode"
    assert dispatch.run(["replay", str(out), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["status"] == "same run, passes"


def test_what_was_stopped_until_the_end_has_the_quiet_phase_to_recover() -> None:
    """A pause without an end is healed when the time for the workload is over."""
    settings = {"connector": "reference", "quiet_phase_s": "20", "extra_config": "{}"}
    result = faulted("pause:node=d0,at_s=0.0001", scenario=with_settings(SMALL, settings))
    assert len(records(result, "fault-healed")) == 1
    assert result.result.outcome.violations == []
    assert result.result.outcome.requests["length"] == SMALL.workload.requests
