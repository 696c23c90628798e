from __future__ import annotations

from pathlib import Path

import pytest
from report_world import FAILING, Log, Page

from faults import artifact
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.report.axis import LogAxis, TimeAxis
from faults.report.focus import Focus, focus_on
from faults.report.happenings import MAX_HAPPENINGS, happenings
from faults.report.lanes import Lane, Machines, in_order, process_lane
from faults.report.latency import Request, latencies, requests_of, throughput
from faults.report.ownership import Holding, histories, rows
from faults.report.run_section import run_section
from faults.report.space_time import space_time
from faults.wording import short_time
from sim.errors import UsageError
from sim.oracles import Violation

CONSUMER, PRODUCER = "consumer:10.0.0.2:6301:tp0", "producer:10.0.0.1:6301:tp0"
HOSTILE = "<b onclick=x>&\"'"


def read_of(uid: int) -> dict[str, object]:
    return {
        "initiator": CONSUMER, "target": PRODUCER, "operation": "read", "uid": uid, "bytes": 500,
        "queue_pair": 257,
    }  # fmt: skip


def started() -> Log:
    log = Log()
    for node in ("p0", "d0"):
        log.add(f"{node}/core/main", "engine-started", node=node, incarnation=0)
    return log


def test_the_page_of_a_failing_run_shows_what_its_artifact_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings, story, replay line, scenario and drawings; the wrong transfer is an arrow."""
    monkeypatch.chdir(tmp_path)
    assert dispatch.run([*FAILING, "--out", "held"]) == ExitCode.VIOLATION
    assert dispatch.run(["report", "held"]) == ExitCode.OK
    page = Page(Path("held/report.html").read_text())
    page.require_self_contained()
    section = run_section(Path("held"))
    assert section.findings
    assert section.wrong
    assert section.drawings is not None
    for told in [sentence for _, sentence in section.findings] + [t for _, t in section.story]:
        assert " ".join(told.split()) in page.text
    assert "faultlab replay held" in page.text
    assert "kind: uniform" in page.text
    classes = [attributes.get("class") for attributes in page.named("path")]
    assert classes.count("arrow wrong") == 1
    assert "violation" in classes
    wrong_boxes = [a for a in page.named("rect") if "wrong" in (a.get("class") or "").split()]
    assert wrong_boxes
    scenario, recorded = artifact.read(Path("held"))  # the report is no edit
    assert run_section(Path("held"), drawn=False).drawings is None
    assert scenario.seed == 0
    assert recorded.verdict == "violation"
    file = Path("held/scenario.yaml")
    file.write_text(file.read_text().replace("seed: 0", "seed: 1"))
    assert "note" in dict(run_section(Path("held")).facts)  # it is shown all the same
    Path("held/events.jsonl").write_text("")
    with pytest.raises(UsageError, match="was edited"):
        run_section(Path("held"))


def test_blocks_with_one_history_share_a_row() -> None:
    """Shared blocks name all holders, and a violation's blocks stand apart."""
    log = Log().held("p0", "r1-p0", [1, 4]).held("p0", "r2-p0", [3, 3]).freed("p0", "r1-p0")
    log.held("p0", "r3-p0", [1, 1])
    focus = Focus(requests={"r1": None}, until_ns=9_000_000)
    focus.wrong_blocks = {"p0": {4: None}}
    ms = 1_000_000
    alone = (Holding(0, 2 * ms, ("r1-p0",)),)
    found = {tuple(row.blocks): (row.holdings, row.is_wrong) for row in rows(log.records, focus)}
    assert found == {
        (1,): ((*alone, Holding(3 * ms, 9 * ms, ("r3-p0",))), False),
        (2,): (alone, False),
        (3,): (
            (
                Holding(0, ms, ("r1-p0",)),
                Holding(ms, 2 * ms, ("r1-p0", "r2-p0")),
                Holding(2 * ms, 9 * ms, ("r2-p0",)),
            ),
            False,
        ),
        (4,): (alone, True),
    }


def test_an_engine_that_starts_again_holds_nothing() -> None:
    """Its memory is new."""
    log = Log().held("d0", "r1-d0", [5, 5])
    log.add("d0/core/main", "engine-started", node="d0", incarnation=1)
    assert histories(log.records, 9_000_000) == {"d0": {5: [Holding(0, 1_000_000, ("r1-d0",))]}}


def test_transfers_posted_in_one_go_are_one_arrow_from_where_the_bytes_are() -> None:
    """One that a violation names is apart, and one that never landed has no end."""
    log = started().add("router", "leg-sent", request="r1", leg="r1-d0", node="d0")
    log.add("router", "leg-sent", request="r1", leg="r1-p0", node="p0")
    for uid in (1, 2):
        log.add("d0/rank0/worker", "posted", **read_of(uid))
        log.records[-1] = log.records[-1]._replace(time_ns=4_000_000)
    log.add("d0/rank0/worker", "posted", **read_of(3)).add("d0/rank0/w", "posted", **read_of(4))
    log.add("hw", "landed", **read_of(1)).add("hw", "landed", **read_of(2))
    log.add("hw", "landed", **read_of(3)).add("hw", "completion-lost", **read_of(4))
    wrong = Violation("use-after-free", 0.02, "d0", "r1-d0", "...", {"transfer": 3})
    shown, left_out = happenings(log.records, focus_on(log.records, [wrong]))
    arrows = [h for h in shown if h.style in ("transfer", "wrong")]
    assert left_out == 0
    assert [(a.style, a.lane, a.to) for a in arrows] == [
        (style, Lane("p0", "NIC"), Lane("d0", "NIC")) for style in ("transfer", "wrong", "transfer")
    ]
    assert [a.end_ns for a in arrows] == [9_000_000, 10_000_000, None]
    assert "2 × read" in arrows[0].text
    assert "transfers 1-2" in arrows[0].text
    assert "1 completion lost" in arrows[2].text


def test_what_matters_least_is_left_out_of_a_long_run() -> None:
    """Messages go first; the violation and its request stay."""
    log = started().add("router", "request-arrived", request="r1")
    log.add("router", "leg-sent", request="r1", leg="r1-p0", node="p0")
    log.add("router", "leg-sent", request="r1", leg="r1-d0", node="d0")
    message = {"source": "d0/core", "target": "p0/core", "port": 9, "bytes": 1}
    for number in range(3 * MAX_HAPPENINGS):
        log.add("hw", "message-sent", digest=str(number), **message)
    wrong = Violation("leak", 1.0, "d0", "r1-d0", "...", {})
    focus = focus_on(log.records, [wrong])
    shown, left_out = happenings(log.records, focus)
    assert len(shown) == MAX_HAPPENINGS
    assert left_out == 3 * MAX_HAPPENINGS + 4 - MAX_HAPPENINGS
    assert {"leak: ...", "r1: request arrived"} <= {happening.text for happening in shown}
    picture, _ = space_time(log.records, focus)
    assert len(picture) < 60_000


def test_log_lines_are_told_as_people_know_the_legs() -> None:
    """Without addresses, and of structured lines what they say; lines of no weight are not told."""
    leg = f"___prefill_addr_a:1___decode_addr_b:2_{'0' * 32}-r1-d0"
    log = started().add("router", "leg-sent", request="r1", leg="r1-d0", node="d0")
    for level, message in (
        ("ERROR", f"Write failed for {leg}, done"),
        ("WARNING", '{"event": "load-failed", "reason": "late"}'),
        ("ERROR", '{"event": "flight-record"}'),
        ("INFO", "nothing"),
    ):
        log.add("d0/core/main", "log", level=level, module="m", message=message)
    wrong = Violation("leak", 1.0, "d0", "r1-d0", "...", {})
    shown, _ = happenings(log.records, focus_on(log.records, [wrong]))
    assert [h.text for h in shown if h.style == "log"] == [
        "error: Write failed for r1-d0, done", "warning: load-failed: late",
    ]  # fmt: skip


def test_a_hostile_log_cannot_become_markup() -> None:
    """Whatever a request, an engine or a log line is called."""
    log = started().add("router", "request-arrived", request=HOSTILE)
    log.add("router", "leg-sent", request=HOSTILE, leg=f"{HOSTILE}-d0", node=HOSTILE)
    log.held(HOSTILE, f"{HOSTILE}-d0", [1, 2])
    log.add(f"{HOSTILE}/core/main", "log", level="ERROR", module="m", message=HOSTILE)
    picture, _ = space_time(log.records, focus_on(log.records, []))
    page = Page(picture)
    page.require_self_contained()
    assert HOSTILE in page.text
    assert not page.named("b")


def test_the_cards_of_producers_and_consumers_are_side_by_side() -> None:
    """What they exchange crosses no other lane."""
    lanes = [process_lane(f"{node}/{part}") for node in ("d0", "p0") for part in ("rank0", "core")]
    lanes += [Lane("d0", "NIC"), Lane("p0", "NIC"), Lane("", "router")]
    assert [f"{lane.engine} {lane.name}".strip() for lane in in_order(lanes, ["p0", "d0"])] == [
        "router", "p0 engine", "p0 rank 0", "p0 NIC", "d0 NIC", "d0 rank 0", "d0 engine",
    ]  # fmt: skip


def test_an_endpoint_is_on_the_machine_of_whoever_posts_from_its_address() -> None:
    """And on the one that the testbed has given the address to, if nobody does."""
    log = started().add("d0/rank0/worker", "posted", **read_of(1))
    machines = Machines(log.records)
    assert [machines.of_endpoint(end) for end in (CONSUMER, PRODUCER, "nobody")] == [
        "d0", "p0", "nobody",
    ]  # fmt: skip


def test_latency_and_throughput_are_those_of_the_log() -> None:
    """Arrival to end, the end of the leg on the producer between."""
    log = Log().add("router", "request-arrived", request="r1")
    log.add("router", "request-arrived", request="r2")
    log.add("router", "leg-finished", request="r1", leg="r1-p0", node="p0", outcome="length")
    log.add("router", "request-ended", request="r1", outcome="length", tokens=6)
    first, second = requests_of(log.records)
    assert (first.prefilled_ns, first.ended_ns, first.tokens) == (2_000_000, 3_000_000, 6)
    assert (second.ended_ns, second.outcome, second.lasted_ns(9_000_000)) == (
        None,
        "not ended",
        8_000_000,
    )
    assert throughput([first, second]) == (
        "1 of 2 requests ended, half of them within 3 ms and all within 3 ms; 6 tokens, "
        "2000 tokens/s"
    )
    assert throughput([second]) == ""


def test_the_axis_of_latencies_says_that_it_is_logarithmic() -> None:
    """Else a bar twice as long would be read as twice the time."""
    request = Request("req-0", arrived_ns=0, ended_ns=5, outcome="length", tokens=1)
    assert "logarithmic" in latencies([request], 10)
    assert not latencies([], 10)


def test_axes_keep_order_and_ends() -> None:
    """Long pauses are compressed, never reversed; quantities go by decades."""
    times = [0, 1_000, 2_000, 60_000_000_000]
    axis = TimeAxis(times, 100, 400)
    places = [axis.at(time_ns) for time_ns in times]
    assert places == sorted(places)
    assert (places[0], round(places[-1])) == (100, 500)
    assert places[2] - places[1] > 30
    assert axis.at(10**12) == places[-1]
    assert TimeAxis([], 5, 10).at(3) == 5
    log_axis = LogAxis([0.02, 5.0], 0, 300)
    assert [round(log_axis.at(value)) for value in (0.0, 0.01, 0.1, 10.0)] == [0, 0, 100, 300]
    assert [short_time(t) for t in (0, 7, 1_500, 2_000_000, 65 * 10**9)] == [
        "0 s", "7 ns", "1.5 µs", "2 ms", "65 s",
    ]  # fmt: skip
