"""What follows a read that fails or does not end: blocks, queue pairs, other requests, the peer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults.mutants.catalog import MUTANTS
from faults.mutants.mutant import Mutant
from faults.running import run
from faults.schedule import parse, with_faults
from sim.engine.options import EngineOptions
from sim.outcome import Outcome
from sim.probes import Probe
from sim.scenario import Scenario, Topology, UniformWorkload, loads, with_settings
from sim.units import SECOND

LATE = "late-landing:by_s=10,request=req-0"
TWICE = f"{LATE},count=1000"
TIGHT = {"transfer_timeout": 1, "defer_timeout": 3, "fence_timeout": 20}


class Ends(Probe):
    """When each load was reported, and whether it failed."""

    def __init__(self) -> None:
        self.reports: dict[str, tuple[bool, int]] = {}
        self._now_ns = lambda: 0

    def engine_started(self, engine: Any) -> None:
        self._now_ns = lambda: engine.kernel.now_ns

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        self.reports[request_id] = (failed, self._now_ns())


class ClientEnds(Probe):
    """How each request ended, and how long it took."""

    def __init__(self) -> None:
        self.ended: dict[str, tuple[str, int]] = {}
        self._started: dict[str, int] = {}
        self._now_ns = lambda: 0

    def engine_started(self, engine: Any) -> None:
        self._now_ns = lambda: engine.kernel.now_ns

    def request_started(self, request_id: str) -> None:
        self._started[request_id] = self._now_ns()

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self.ended[request_id] = (outcome, self._now_ns() - self._started[request_id])


def serve(
    fault: str | None, overlay: Path | None = None, probe: Probe | None = None, **changes: Any
) -> Outcome:
    """Requests of which the caches hold two, so that what one gives back is taken by the next."""
    scenario = Scenario(
        connector="hybrid",
        model="llama",
        workload=UniformWorkload(
            requests=12, prompt_tokens=(600, 600), output_tokens=(8, 8), interval_ms=400
        ),
        engine=EngineOptions(num_blocks=85),
        quiet_phase_s=30,
        extra_config=TIGHT,
        faults=() if fault is None else (msgspec.to_builtins(parse(fault)),),
    )
    scenario = msgspec.structs.replace(scenario, **changes)
    if overlay is not None:
        scenario = with_settings(scenario, {"overlay": msgspec.json.encode(str(overlay)).decode()})
    return run(scenario, probe=probe).result.outcome


@pytest.mark.requirement("S5")
def test_blocks_are_reused_at_once_when_the_queue_pairs_are_destroyed() -> None:
    """The reads of the first request would land nine seconds after they were given up. Its blocks
    go to others long before, and no byte reaches them."""
    ends = Ends()
    outcome = serve(TWICE, probe=ends)
    assert outcome.violations == []
    assert outcome.requests["length"] >= 8
    failed = [at_ns for failed, at_ns in ends.reports.values() if failed]
    assert failed
    assert max(failed) < 6 * SECOND


@pytest.mark.requirement("S5")
def test_what_is_read_once_more_is_not_hit_by_the_first_reads() -> None:
    """They would land when the request is long over. It is served, and so are all others."""
    ends = Ends()
    outcome = serve(LATE, probe=ends)
    assert outcome.violations == []
    assert outcome.requests["length"] == 12
    assert not any(failed for failed, _ in ends.reports.values())


def test_the_bytes_would_land_if_the_queue_pairs_were_not_destroyed(tmp_path: Path) -> None:
    """The same run with a fence that only pretends: the late bytes hit somebody else's blocks."""
    MUTANTS["queue-pair-not-destroyed"].write(tmp_path)
    outcome = serve(LATE, tmp_path)
    assert any(v.oracle == "use-after-free" for v in outcome.violations), outcome.violations


CONTROL_TIMEOUT_NS = SECOND // 2


@pytest.mark.parametrize(
    "fault",
    [
        "control-plane-silent:count=1000,peer=p0",
        "crash:node=p0,phase=handshake,for_s=5",
        "never-answers:node=p0",
        "pause:node=p0,phase=handshake,for_s=4",
        "send-queue-full:count=1000,peer=p0",
    ],
)
def test_a_dead_peer_costs_requests_to_a_healthy_one_one_control_plane_time_out(fault: str) -> None:
    """Whether it accepts connections and never answers, or is gone, or stands still: every request
    of the other producer is served, at most half a second later than without the fault."""
    many = UniformWorkload(
        requests=30, prompt_tokens=(100, 100), output_tokens=(4, 4), interval_ms=50
    )
    changes = {
        "topology": Topology(producers=2),
        "engine": EngineOptions(),
        "workload": many,
        "extra_config": {**TIGHT, "transfer_timeout": 6, "defer_timeout": 10},
    }
    with_fault, without = ClientEnds(), ClientEnds()
    outcome = serve(fault, probe=with_fault, **changes)
    serve(None, probe=without, **changes)
    assert outcome.violations == []
    late = [took_ns for _, took_ns in with_fault.ended.values()]
    assert max(late) > 2 * CONTROL_TIMEOUT_NS  # of the dead one
    for number in range(1, 30, 2):  # the router takes turns
        name = f"req-{number}"
        how, took_ns = with_fault.ended[name]
        assert how == "length", name
        allowed_ns = without.ended[name][1] + CONTROL_TIMEOUT_NS + SECOND // 20
        assert took_ns <= allowed_ns, (name, took_ns)


@pytest.mark.parametrize(
    ("module", "qualname", "right", "wrong", "failed"),
    [
        (
            "connector.transport",
            "Transport.read",
            "uid = self._engine.allocate_transfer_uid()",
            "uid = self._engine.allocate_transfer_uid(); assert uid != 2, 'planted'",
            4,  # of 12: a new engine of the library counts anew
        ),
        (
            "connector.loader",
            "Loader._run",
            "self._renewer.go_on(now)",
            "raise RuntimeError('planted')",
            0,
        ),
    ],
    ids=["of-a-load", "beside-the-loads"],
)
def test_an_error_of_the_program_fails_the_load_that_it_is_in(
    tmp_path: Path, module: str, qualname: str, right: str, wrong: str, failed: int
) -> None:
    """And no other: the thread that reports loads lives on. An oracle tells of the error."""
    Mutant(
        name="planted", breaks="", module=module, qualname=qualname, right=right, wrong=wrong
    ).write(tmp_path)
    outcome = serve(None, tmp_path)
    assert {violation.oracle for violation in outcome.violations} == {"unexpected-exception"}
    assert outcome.requests.get("error", 0) == failed
    assert outcome.requests["length"] == 12 - failed


def test_answers_that_come_too_late_are_not_kept() -> None:
    """A producer that answers slowly is asked again, and answers each time."""
    outcome = serve(
        "never-answers:node=p0,for_s=1.2,phase=read_done", extra_config={"transfer_timeout": 4}
    )
    assert outcome.violations == []
    assert outcome.requests["length"] == 12


def test_a_long_prompt_is_posted_in_parts_that_a_queue_has_room_for() -> None:
    """And read through a queue that is full again and again, as long as the load may take."""
    outcome = serve(
        "send-queue-full:count=20",
        workload=UniformWorkload(
            requests=2, prompt_tokens=(20_000, 20_000), output_tokens=(4, 4), interval_ms=100
        ),
        engine=EngineOptions(),
        extra_config={},
    )
    assert outcome.violations == []
    assert outcome.requests["length"] == 2


SHARED_QUEUE = """
# Four queue pairs and two posting threads: one part of the victim's read finds no room, and the
# other, which was posted, lands long after the victim has been answered from a second read.
schema_version: 1
connector: hybrid
model: llama
engine: {num_blocks: 60}
extra_config: {qp_per_transfer: 4, num_workers: 2}
workload:
  kind: inline
  requests:
    - {request_id: victim, prompt: [[1, 100]], max_tokens: 10}
    - {request_id: other, prompt: [[2, 880]], max_tokens: 60, arrival_s: 0.4}
faults:
  - {kind: late-landing, target: {request: victim}, by_s: 0.6}
  - {kind: send-queue-full, target: {request: victim}, skip: 1}
quiet_phase_s: 30.0
"""


@pytest.mark.requirement("S5")
def test_what_was_posted_of_a_read_that_found_no_room_is_waited_for() -> None:
    """Over several queue pairs a refused read may still land, and nobody would hear of it."""
    outcome = run(loads(SHARED_QUEUE)).result.outcome
    assert outcome.violations == []
    assert outcome.requests == {"total": 2, "length": 2, "unfinished": 0}


@pytest.mark.requirement("R18", "S6")
def test_a_peer_whose_reads_go_on_failing_makes_nobody_else_connect_anew() -> None:
    """mori.io never takes down queue pairs whose other side is gone, so on a producer that all is
    well with they would pile up."""
    many = UniformWorkload(
        requests=16, prompt_tokens=(100, 100), output_tokens=(4, 4), interval_ms=250
    )
    scenario = Scenario(
        connector="hybrid", topology=Topology(producers=2), workload=many, quiet_phase_s=5.0
    )
    fault = "completion-error:node=d0,peer=p0,count=1000,code=RETRY_EXC"
    result = run(with_faults(scenario, [fault])).result
    assert result.outcome.violations == []
    assert result.outcome.requests == {"total": 16, "length": 8, "error": 8, "unfinished": 0}
    made = [
        record.fields["target"].split(":")[1]
        for record in result.log.records
        if record.fields.get("request") == "register-endpoint"
    ]
    failing, healthy = (made.count(address) for address in ("10.0.0.1", "10.0.0.2"))
    assert failing > 12
    assert healthy <= 2


@pytest.mark.requirement("R14", "S6")
def test_a_read_goes_on_though_its_peer_has_to_shake_hands_again() -> None:
    """Another producer's queue pairs fail, so that new loads connect anew; while the peer is slow
    to answer them, what was already being read from it completes, and is confirmed."""
    scenario = with_settings(
        Scenario(
            connector="hybrid",
            topology=Topology(producers=2),
            workload=UniformWorkload(
                requests=3, prompt_tokens=(300, 300), output_tokens=(4, 4), interval_ms=50.0
            ),
            quiet_phase_s=5.0,
        ),
        {"extra_config.transfer_timeout": "5"},
    )
    faults = (
        "latency-spike:request=req-0,at_s=0,by_us=400000,jitter_us=0",
        "completion-error:request=req-1,at_s=0",
        "never-answers:node=p0,peer=d0,at_s=0.09,for_s=0.6",
    )
    decoded = tuple(msgspec.to_builtins(parse(fault)) for fault in faults)
    ends = Ends()
    outcome = run(msgspec.structs.replace(scenario, faults=decoded), probe=ends).result.outcome
    assert outcome.requests == {"total": 3, "length": 3, "unfinished": 0}
    assert outcome.violations == []
    reported_s = {name: at_ns / SECOND for name, (_, at_ns) in ends.reports.items()}
    assert reported_s["req-0-d0"] < reported_s["req-2-d0"], "nobody shook hands meanwhile"
