from __future__ import annotations

from typing import Any

from story_world import Log, texts

from faults.story import MAX_MOMENTS, tell
from sim.oracles import Violation
from sim.units import MS

STALE = Violation(
    "use-after-free",
    0.0,
    "d0",
    "r0-d0",
    "...",
    {"kind": "stale-read", "transfer": 7, "source_node": "p0", "source_block_ids": [4, 5]},
)


EPILOGUE_IS = " (epilogue: sent when nothing is broken any more, and has to succeed)"
"""Said where one is first named."""


def test_the_story_says_who_held_freed_got_and_read_the_blocks() -> None:
    """Only what concerns the request and its blocks, in order of time."""
    log = Log()
    log.held("p0", "r0-p0", [4, 5]).held("p0", "other-p0", [20, 29]).freed("p0", "r0-p0")
    log.add("p0/core/main", "log", level="WARNING", module="m", message="reaped one")
    log.add("d1/core/main", "log", level="WARNING", module="m", message="of no concern")
    log.held("p0", "r7-p0", [1, 4]).held("p0", "r8-p0", [5, 6]).held("d0", "r0-d0", [8, 9])
    log.read(6).read(7).held("p0", "r9-p0", [4, 5])
    log.violation("use-after-free", "d0", "r0-d0").held("p0", "r10-p0", [4, 5])
    assert texts(log, STALE) == [
        "p0 gives blocks 4-5 to r0-p0",
        "p0 lets go of the blocks of r0-p0",
        "p0 logs: reaped one",
        "p0 gives block 5 to r8-p0",
        "d0 gives blocks 8-9 to r0-d0",
        "d0 posts an RDMA read from blocks 4-5 of p0 (transfer 7)",
        "the RDMA read of d0 from blocks 4-5 of p0 has landed (transfer 7)",
        "use-after-free is reported for r0-d0",
    ]


def test_whose_bytes_were_found_is_told_even_if_others_had_the_blocks_later() -> None:
    """An owner may have had them before the last holder."""
    extent = {"owners": ["r7"], "source_nodes": ["p0"], "source_block_ids": [4], "transfers": []}
    wrong = Violation("wrong-bytes", 0.0, "d0", "r0-d0", "...", {"extent": extent})
    log = Log().held("p0", "r7-p0", [4, 4]).held("p0", "r8-p0", [4, 4])
    log.violation("wrong-bytes", "d0", "r0-d0")
    assert texts(log, wrong) == [
        "p0 gives block 4 to r7-p0",
        "p0 gives block 4 to r8-p0",
        "wrong-bytes is reported for r0-d0",
    ]


def test_who_wrote_into_the_blocks_before_they_were_read_is_told() -> None:
    """The first pass of whoever was given them last, on their engine, until they are read."""
    log = Log().forward("p0", "r0-p0", 0, 32).freed("p0", "r0-p0").held("p0", "r7-p0", [4, 5])
    log.held("p0", "r9-p0", [4, 5]).forward("d0", "r9-p0", 0, 9).forward("p0", "r7-p0", 0, 9)
    log.forward("p0", "r9-p0", 16, 48).forward("p0", "r9-p0", 48, 49)
    log.read(7).violation("use-after-free", "d0", "r0-d0")
    told = texts(log, STALE)
    assert [text for text in told if "pass" in text] == [
        "the first forward pass of r0-p0 begins on p0: it writes tokens 0-31",
        "a forward pass of r9-p0 reads tokens 0-15 and writes tokens 16-47 into its blocks",
    ]
    late = Log().held("p0", "r9-p0", [4, 5]).held("d0", "r0-d0", [8, 9]).read(7)
    late.forward("p0", "r9-p0", 0, 32).violation("use-after-free", "d0", "r0-d0")
    assert not [text for text in texts(late, STALE) if "pass" in text]


def test_posts_that_fail_are_told_of_the_engines_of_the_request() -> None:
    """The first, and the last that was posted after one had failed, with when it was posted."""
    hangs = Violation("liveness", 9.0, None, "r0", "...", {"kind": "not-ended"})
    log = Log().sent("r0-d0", "d0")

    def post(node: str, uid: int) -> None:
        pair = {"initiator": node, "target": "p", "operation": "read", "queue_pair": int(node[1])}
        log.add(f"{node}/core/main", "posted", uid=uid, **pair)

    def end(node: str, uid: int, status: str) -> None:
        pair = {"initiator": node, "target": "p", "operation": "read", "queue_pair": int(node[1])}
        log.add("hw", "completion", uid=uid, status=status, **pair)

    for node, uid in (("d0", 1), ("d0", 2), ("d0", 3), ("d1", 1)):
        post(node, uid)
    end("d0", 1, "SUCCESS")
    end("d0", 2, "RETRY_EXC")
    end("d0", 3, "WR_FLUSH")
    end("d1", 1, "RETRY_EXC")
    first = "the read that d0 posted at 0.002000 s fails with RETRY_EXC (transfer 2)"
    assert [text for text in texts(log, hangs) if "fails" in text] == [first]
    for uid in (4, 5):
        post("d0", uid)
        end("d0", uid, "WR_FLUSH")
    assert [text for text in texts(log, hangs) if "fails" in text] == [
        first,
        "the read that d0 posted at 0.011000 s fails with WR_FLUSH (transfer 5)",
    ]


def test_what_is_reported_of_one_at_once_is_one_line() -> None:
    """With the rule first that says most."""
    log = Log().violation("use-after-free", "d0", "r0-d0").violation("wrong-bytes", "d0", "r0-d0")
    assert texts(log.at_the_same_time(), STALE) == [
        "wrong-bytes and use-after-free are reported for r0-d0"
    ]


def test_a_long_story_keeps_what_matters() -> None:
    """Legs sent again and again are the first to go; order of time stays."""
    log = Log().held("p0", "r0-p0", [4, 5]).freed("p0", "r0-p0")
    for attempt in range(30):
        log.add("router", "leg-sent", request="r0", leg=f"r0-d{attempt}", node="d0", transfer=None)
    log.read(7).violation("use-after-free", "d0", "r0-d0")
    moments = tell(log.records, [STALE])
    assert len(moments) == MAX_MOMENTS
    assert moments == sorted(moments, key=lambda moment: moment.time_ns)
    kept = [moment.text for moment in moments if "sends" not in moment.text]
    assert len(kept) == 5


def test_a_node_without_a_request_has_a_story_too() -> None:
    """An engine that died: its last words, and the death."""
    died = Violation("liveness", 0.0, "p0", None, "...", {"kind": "engine-died"})
    log = Log()
    for word in ("one", "two", "three", "four"):
        log.add("p0/core/main", "log", level="ERROR", module="m", message=word)
    log.add("p0/core/main", "engine-died", node="p0", reason="KeyError: 3", injected=False)
    log.violation("liveness", "p0", None)
    assert texts(log, died) == [
        "p0 logs: two",
        "p0 logs: three",
        "p0 logs: four",
        "p0 dies: KeyError: 3",
        "liveness is reported for p0",
    ]


def test_without_violations_there_is_nothing_to_tell() -> None:
    """A passing run has no story."""
    assert tell(Log().held("p0", "r0-p0", [1, 2]).records, []) == []


def test_every_cache_group_is_told_and_the_null_block_is_not() -> None:
    """A hybrid model takes blocks in each group, at once; null blocks are given to nobody."""
    log = Log().held("p0", "r0-p0", [0, 0], [4, 5]).held("p0", "r0-p0", [9, 9], group=1)
    log.at_the_same_time().held("p0", "r0-p0", [20, 20], group=1)
    log.violation("use-after-free", "d0", "r0-d0")
    assert texts(log, STALE)[0] == "p0 gives blocks 4-5 (group 0), block 9 (group 1) to r0-p0"


def test_a_read_that_lands_after_the_pass_began_shows_as_such() -> None:
    """Zeros were found, so no transfer is named: those that the engine posted meanwhile are."""
    zeros = Violation("wrong-bytes", 0.0, "d0", "r0-d0", "...", {"extent": {"found": ["zeros"]}})
    fields = {"initiator": "d", "target": "p", "operation": "read"}
    log = Log().add("d0/core/main", "posted", uid=1, **fields).held("d0", "r0-d0", [8, 9])
    for uid in (2, 3):
        log.add("d0/core/main", "posted", uid=uid, **fields)
    for _ in range(2):  # ranks
        log.add("hw", "forward-began", node="d0", rank=0, requests=[["r0-d0", 0, 32]])
    log.violation("wrong-bytes", "d0", "r0-d0")
    log.add("hw", "landed", uid=2, **fields).add("hw", "landed", uid=3, **fields)
    assert texts(log, zeros) == [
        "d0 gives blocks 8-9 to r0-d0",
        "d0 posts an RDMA read in 2 parts (transfers 2-3)",
        "the first forward pass of r0-d0 begins on d0: it writes tokens 0-31",
        "wrong-bytes is reported for r0-d0",
        "the last part of the RDMA read of d0 lands (transfers 2-3)",
    ]


def test_a_hand_off_that_was_held_is_told_with_its_prefill_and_how_long_it_took() -> None:
    """The end of the prefill in one line with the hold; of a short hand-off no time."""
    hangs = Violation("liveness", 9.0, None, "r0", "...", {"kind": "not-ended"})
    log = Log().sent("r0-p0", "p0")
    prefill = {"request": "r0", "leg": "r0-p0", "node": "p0"}
    log.add("router", "leg-finished", outcome="length", **prefill)
    short = Log()
    short.records = list(log.records)
    assert texts(short.sent("r0-d0", "d0"), hangs)[1:] == [
        "p0 ends the prefill r0-p0",
        "the router sends r0-d0 to d0",
    ]
    log.add("router", "hand-off-held", request="r0", seconds=65.0).at_the_same_time()
    log.sent("r0-d0", "d0")
    *before, sent = log.records
    log.records = [*before, sent._replace(time_ns=65_001 * MS)]
    assert texts(log, hangs)[1:] == [
        "p0 ends the prefill r0-p0; the router holds r0 back for 65 s",
        "the router sends r0-d0 to d0, 65 s after its prefill",
    ]


def test_a_leak_tells_who_holds_the_blocks_and_what_was_last_heard() -> None:
    """Its evidence names the legs; messages of the quiet phase are about its own request."""
    leak = Violation("leak", 9.0, "p0", None, "...", {"requests": {"r0-p0": "ended"}})
    log = Log().sent("r0-p0", "p0").held("p0", "r0-p0", [1, 4])
    log.add("d0/core/main", "message-delivered", source="d0/core", target="p0/core", port="9")
    log.add("router", "request-ended", request="r0", outcome="abort", tokens=0)
    log.add("router", "request-arrived", request="epilogue", prompt_tokens=1, max_tokens=1)
    log.add("d0/core/main", "message-delivered", source="d0/core", target="p0/core", port="9")
    log.violation("leak", "p0", None)
    assert texts(log, leak) == [
        "the router sends r0-p0 to p0",
        "p0 gives blocks 1-4 to r0-p0",
        "the last message before the quiet phase reaches p0, from d0",
        "r0 ends with 'abort' and 0 tokens",
        "leak is reported for p0",
    ]
    silent = Log().held("p0", "r0-p0", [1, 4])
    assert texts(silent, leak)[-1] == (
        "p0 has heard nothing from another engine before the quiet phase"
    )


def test_a_request_that_hangs_tells_who_waits_for_what() -> None:
    """Of the engines that serve it; tasks that always wait are left out."""
    hangs = Violation("liveness", 9.0, None, "r0", "...", {"kind": "not-ended"})
    log = Log().sent("r0-p0", "p0").sent("r0-d0", "d0").sent("r1-d0", "d1")
    log.add("router", "leg-finished", request="r0", leg="r0-p0", node="p0", outcome="length")
    waits = [
        "p0/core/main waits for work at a:1 in b",
        "d0/core/main waits for an answer at c:2 in d",
        "d0/core/input waits for a message at e:3 in f",
        "d1/core/main waits for work at a:1 in b",
    ]
    log.add("hw", "still-waiting", waiting=waits).violation("liveness", None, "r0")
    assert texts(log, hangs)[-2:] == [waits[1], "liveness is reported for r0"]


def test_the_death_of_an_engine_is_about_what_it_served() -> None:
    """With the request under way, and the fault that came before."""
    died = Violation("liveness", 0.0, "d0", None, "...", {"kind": "engine-died"})
    log = Log().sent("r0-d0", "d0").sent("r1-d0", "d0").held("d0", "r1-d0", [7, 7])
    log.add("router", "leg-finished", request="r0", leg="r0-d0", node="d0", outcome="length")
    log.add("nemesis", "fault-struck", fault=0, fault_kind="fail_read", request="r1-d0")
    log.add("d0/core/main", "engine-died", node="d0", reason="ValueError: x", injected=False)
    log.violation("liveness", "d0", None)
    assert texts(log, died) == [
        "the router sends r1-d0 to d0",
        "d0 gives block 7 to r1-d0",
        "fault fail_read is armed, for r1-d0, and hits nothing",
        "d0 dies, with r1-d0 under way: ValueError: x",
        "liveness is reported for d0",
    ]


def test_what_happens_in_one_instant_is_told_in_the_order_of_the_log() -> None:
    """Which is that of causes: a fault strikes, an engine dies of it, and its request ends."""
    died = Violation("liveness", 0.0, "d0", None, "...", {"kind": "engine-died"})
    log = Log().sent("r0-d0", "d0").held("d0", "r0-d0", [7, 7])
    ended = {"request": "r0", "outcome": "engine-died"}
    for kind, fields in (
        ("fault-struck", {"fault": 0, "fault_kind": "f", "request": "r0"}),
        ("fault-hit", {"fault": 0, "fault_kind": "f", "requests": {"r0": []}}),
        ("engine-died", {"node": "d0", "reason": "x", "injected": False}),
        ("leg-finished", {**ended, "leg": "r0-d0", "node": "d0"}),
        ("request-ended", {**ended, "tokens": 0}),
    ):
        log.add("any", kind, **fields).at_the_same_time()
    log.violation("liveness", "d0", None).at_the_same_time()
    assert texts(log, died) == [
        "the router sends r0-d0 to d0",
        "d0 gives block 7 to r0-d0",
        "fault f has struck, for r0",
        "d0 dies, with r0-d0 under way: x",
        "r0-d0 ends on d0: engine-died",
        "r0 ends with 'engine-died' and 0 tokens",
        "liveness is reported for d0",
    ]


def test_a_second_release_is_told_with_the_first() -> None:
    """Both reports of the producer's rank, and the load that the first one ended."""
    again = Violation("release-once", 0.0, "p0", "r0-p0", "...", {"kind": "released-again"})
    log = Log().held("p0", "r0-p0", [1, 4])
    for _ in range(2):
        log.add("p0/core/main", "sending-finished", node="p0", rank=0, request="r0-p0")
    log.violation("release-once", "p0", "r0-p0")
    report = "p0 rank 0 reports that the blocks of r0-p0 may go"
    assert texts(log, again) == [
        "p0 gives blocks 1-4 to r0-p0",
        report,
        report,
        "release-once is reported for r0-p0",
    ]


def test_what_is_said_of_other_requests_is_left_out() -> None:
    """Logs that name others only, and queue pairs on which others posted."""
    log = Log()
    for request in ("r0", "r5"):
        log.add("router", "request-arrived", request=request, prompt_tokens=1, max_tokens=1)
    log.held("p0", "r0-p0", [4, 5])
    for message in ("r5-d0 is late", "r0-d0 is late, and r5-d0", "a word about nobody"):
        log.add("d0/core/main", "log", level="ERROR", module="m", message=message)
    log.add("d1/core/main", "posted", initiator="e", target="p", uid=1, queue_pair=8)
    log.read(7).add("hw", "queue-pair-error", queue_pair=8, engine="e")
    log.violation("use-after-free", "d0", "r0-d0")
    told = texts(log, STALE)
    assert [text for text in told if "logs" in text] == [
        "d0 logs: r0-d0 is late, and r5-d0",
        "d0 logs: a word about nobody",
    ]
    assert not any("queue pair" in text or text.startswith("r5") for text in told)


def test_a_story_begins_with_the_request_that_a_fault_struck() -> None:
    """The epilogue's request suffers from it; and of several violations its own comes first."""
    after = Violation("liveness", 9.0, None, "epilogue", "...", {"kind": "epilogue"})
    log = Log().sent("r0-d0", "d0").sent("r1-d0", "d0")
    log.add("nemesis", "fault-struck", fault=0, fault_kind="f", request="r1")
    log.add("nemesis", "fault-hit", fault=0, fault_kind="f", requests={"r1": []})
    log.sent("epilogue-d0", "d0").violation("liveness", None, "epilogue")
    assert texts(log, after) == [
        "the router sends r1-d0 to d0",
        "fault f is armed, for r1",
        "fault f has struck, for r1, 1 ms after it was armed",
        f"the router sends epilogue-d0 to d0{EPILOGUE_IS}",
        "liveness is reported for epilogue",
    ]
    hangs = Violation("liveness", 9.0, None, "r0", "...", {"kind": "not-ended"})
    assert "the router sends r0-d0 to d0" in texts(log, after, hangs)


def test_an_engine_that_stood_still_is_about_what_it_served_then() -> None:
    """Not about what came later."""
    slow = Violation("bounded-waiting", 0.002, "d0", None, "...", {"kind": "long-step"})
    log = Log().sent("r0-d0", "d0").sent("r9-d0", "d1").held("d0", "r0-d0", [7, 7])
    log.sent("r1-d0", "d0")
    assert texts(log, slow) == ["the router sends r0-d0 to d0", "d0 gives block 7 to r0-d0"]


def test_who_wrote_over_a_transfer_is_part_of_the_story() -> None:
    """At its time; the last of them when there are many."""
    writes = [[n * MS, 8, f"drafts of r{n}-d0 on d0"] for n in (5, 6, 7)]
    extent = {"transfers": [1], "source_block_ids": [4], "source_nodes": ["p0"]}
    wrong = Violation(
        "wrong-bytes", 0.0, "d0", "r0-d0", "...", {"extent": {**extent, "overwritten": writes}}
    )
    log = Log().held("d0", "r0-d0", [8, 8]).read(1)
    assert texts(log, wrong)[-2:] == [
        "block 8 is written to by drafts of r6-d0 on d0, after the transfer into it",
        "block 8 is written to by drafts of r7-d0 on d0, after the transfer into it",
    ]


def test_a_fault_is_armed_strikes_or_cannot() -> None:
    """It strikes when it hits something; of a strike the first hit is told, how late it was, and
    how many there are; of what hits nothing one line."""
    died = Violation("liveness", 0.0, "d0", None, "...", {"kind": "engine-died"})
    log = Log()

    def nemesis(kind: str, fault: int, **fields: Any) -> Log:
        return log.add("nemesis", f"fault-{kind}", fault=fault, fault_kind=f"f{fault}", **fields)

    nemesis("struck", 0, request="r0")
    nemesis("hit", 0, requests={"r0": []})
    nemesis("hit", 0, requests={"r1": []})
    nemesis("struck", 1, request=None)
    nemesis("hit", 1, requests={"r0": [], "r2": []}).at_the_same_time()
    nemesis("struck", 2, request="r6")
    nemesis("missed", 2, reason="no queue pair").at_the_same_time()
    nemesis("struck", 3, request=None)
    nemesis("healed", 3)
    nemesis("struck", 4, request=None)
    nemesis("hit", 4, requests={"r9": []})
    nemesis("healed", 4)
    log.add("d0/core/main", "engine-died", node="d0", reason="x", injected=False)
    assert [text for text in texts(log, died) if text.startswith("fault")] == [
        "fault f0 is armed, for r0",
        "fault f0 has struck, for r0, 1 ms after it was armed (hit 1 of 2)",
        "fault f1 has struck, for r0",
        "fault f2 could not strike: no queue pair",
        "fault f3 is armed, and hits nothing before it is healed at 0.008000 s",
    ]


WRONG = "{} ended with 'length' and 2 of 2 tokens; output token 1 is 7 and should be 9"


def answered_wrongly(log: Log, request: str, node: str) -> None:
    log.sent(f"{request}-{node}", node)
    detail = WRONG.format(request)
    fields = {"oracle": "same-output", "node": None, "request": request, "detail": detail}
    log.add("router", "violation", **fields)


def test_the_story_tells_of_every_wrong_answer_and_first_of_the_last_check() -> None:
    """Who answered, and from which token on; the story's own request, the one that checks the end
    of a run, one more, and the names of others."""
    log = Log().sent("r0-p0", "p0")
    for request in ("r0", "r1", "r2", "r3"):
        answered_wrongly(log, request, "d0")
    log.sent("epilogue-p0", "p0")
    answered_wrongly(log, "epilogue", "d1")
    told = [
        text
        for text in texts(log, Violation("same-output", 0.002, None, "r0", "...", {}))
        if "same-output" in text
    ]
    assert told == [
        "same-output is reported for r0, which d0 answered: output token 1 is 7 and should be 9",
        "same-output is reported for r1, which d0 answered: output token 1 is 7 and should be 9",
        "by now same-output is reported for r2, r3 too",
        "same-output is reported for epilogue, which d1 answered: "
        f"output token 1 is 7 and should be 9{EPILOGUE_IS}",
    ]


def test_of_other_wrong_answers_those_come_first_whose_load_had_failed() -> None:
    """With the report of the load and the error that names it; nobody else's."""
    log = Log()
    for request in ("r0", "r1", "r2", "r3"):
        log.add("router", "request-arrived", request=request, prompt_tokens=1, max_tokens=1)
    for request in ("r2", "r3"):
        log.add("d0/core/main", "log", level="ERROR", module="m", message=f"no read of {request}")
    log.add("d0/core/main", "receiving-finished", node="d0", request="r3-d0", failed=True)
    for request in ("r0", "r1", "r2", "r3"):
        answered_wrongly(log, request, "d0")
    told = texts(log, Violation("same-output", 0.002, None, "r0", "...", {}))
    ended = ", which d0 answered: output token 1 is 7 and should be 9"
    assert told == [
        "r0 arrives (1 token in, 1 out)",
        "d0 logs: no read of r3",
        "d0 reports the load of r3-d0 as failed",
        "the router sends r0-d0 to d0",
        f"same-output is reported for r0{ended}",
        f"same-output is reported for r1{ended}",
        "by now same-output is reported for r2 too",
        f"same-output is reported for r3{ended}",
    ]


def test_an_error_that_names_the_request_is_told_among_many_lines() -> None:
    """However much is logged after it, and by whichever engine; others' errors are not."""
    log = Log()
    for request in ("r0", "r1"):
        log.add("router", "request-arrived", request=request, prompt_tokens=1, max_tokens=1)
    for request in ("r0", "r1"):
        log.add("d9/core/main", "log", level="ERROR", module="m", message=f"lost {request}-d9")
    for number in range(9):
        log.add("d0/core/main", "log", level="WARNING", module="m", message=f"line {number}")
    log.violation("use-after-free", "d0", "r0-d0")
    log.add("d0/core/main", "log", level="ERROR", module="m", message="r0-d0 was wrong")
    assert [text for text in texts(log, STALE) if "logs" in text] == [
        "d9 logs: lost r0-d9",
        "d0 logs: line 6",
        "d0 logs: line 7",
        "d0 logs: line 8",
        "d0 logs: r0-d0 was wrong",
    ]


def test_a_story_about_something_else_tells_of_the_wrong_answer_at_the_end() -> None:
    """The request that checks the end of a run is no part of it otherwise."""
    log = Log().sent("r0-d0", "d0").violation("liveness", None, "r0")
    answered_wrongly(log, "epilogue", "d0")
    hangs = Violation("liveness", 9.0, None, "r0", "...", {"kind": "not-ended"})
    assert texts(log, hangs)[-2:] == [
        "liveness is reported for r0",
        "same-output is reported for epilogue, which d0 answered: "
        f"output token 1 is 7 and should be 9{EPILOGUE_IS}",
    ]
