"""Load with a producer that is killed: servers are real processes that speak vLLM's HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engines import FakeEngine
from load_phases import seen_as, undisturbed, write_trace
from load_runs import (
    assert_sealed,
    checks,
    command,
    engine_log,
    run_load,
)

from hw_tests.load.__main__ import main
from hw_tests.load.boot import boot_lines
from hw_tests.load.checks import (
    act_was_met,
    all_served,
    blocks_were_read,
    control_loads_nothing,
    drafts_are_accepted,
    errors_are_told,
    loads_are_verified,
    same_answers,
)
from hw_tests.load.page import lines, page
from hw_tests.load.send import Limits, Reply, requests_of
from hw_tests.load.verified import WANTED, verifies
from hw_tests.outcome import NOT_COMPARED, UNVERIFIED
from hw_tests.recall.counters import Counters, since
from hw_tests.registered import HEAD, compare

GOOD = Reply("req-0", 200, " 5", None, 0.0, 1.0)
LOST = Reply("req-1", 502, "", "http://prefill: gone", 0.0, 1.0)
CUT = Reply("req-2", 0, "", "ClientOSError: reset", 0.0, 1.0)


def test_a_producer_killed_under_load(tmp_path: Path) -> None:
    """Its requests fail with a server's error, all else goes on: exit code 0, and a page that says
    of each lost request what happened."""
    code, found = run_load(tmp_path, "--act", "killed", "--exact")
    assert (code, found["passed"], found["stopped"]) == (0, True, None), found
    assert len(found["phases"]) == 3
    assert f"every later load is verified ({WANTED})" in checks(found["phases"][2], passed=True)
    assert found["caveats"] == []
    lost = [reply for reply in found["phases"][2]["router"] if reply["error"] is not None]
    assert 0 < len(lost) < 24
    assert {reply["status"] for reply in lost} <= {500, 502}
    assert found["counters"]["router"]["acceptance"] == pytest.approx(0.8)
    page = (tmp_path / "load.html").read_text()
    assert lost[0]["name"] in page
    assert "prefill engine killed under load" in page
    assert list(found["boot"]) == ["prefill", "decode", "control", "router"]
    assert "Told at the start" in page
    servers = ("prefill", "decode", "control", "router")
    assert list(found["files"]) == ["trace.jsonl", *(f"{name}.log" for name in servers)]
    assert_sealed(tmp_path / "load.json")
    assert "unverified on hardware" in page
    assert found["registered"]["said"] == "prefill and decode have registered the same"
    assert [row[:2] for row in found["registered"]["rows"][:1]] == [["prefill", "producer"]]
    for cell in found["registered"]["rows"][0]:
        assert f"<td>{cell}</td>" in page


def test_what_a_start_tells_of_caches_is_kept(tmp_path: Path) -> None:
    """vLLM's lines and the connector's, in whatever prefix, each once; not those of requests."""
    told = [
        "(EngineCore pid=7) INFO Using HND KV cache layout.",
        "INFO GPU KV cache size: 12,288 tokens",
        "INFO Setting attention block size to 1152 tokens",
        'INFO {"at_s": 1.0, "event": "started", "groups": ["recurrent state group"]}',
    ]
    other = ['INFO {"event": "load-failed"}', "INFO 127.0.0.1 - POST /v1/completions 200"]
    log = tmp_path / "decode.log"
    log.write_text("\n".join([*told, *other, told[0]]))
    assert boot_lines(log) == told
    assert boot_lines(tmp_path / "none.log") == []


LOGS = {"prefill": "producer", "decode": "consumer"}


def logs() -> dict[str, str]:
    """Of both engines, as they are without a fault."""
    return {name: engine_log(role) for name, role in LOGS.items()}


def test_registered_caches_are_grouped_by_rank_and_by_what_is_alike() -> None:
    """Two ranks that lie alike are one entry; each layer is in one group, with its bytes."""
    evidence = compare(logs())
    assert evidence.passed
    for name, role in LOGS.items():
        (caches,) = evidence.sides[name]
        assert (caches.role, caches.ranks) == (role, (0, 1))
        events = [json.loads(line[line.index("{") :]) for line in logs()[name].splitlines()]
        (event, *_) = [one for one in events if one["event"] == "caches-registered"]
        assert caches.blocks == event["blocks"]
        by_name = {layer: of for of in caches.layers for layer in of.names}
        assert len(caches.layers) < len(by_name) == len(event["layers"])
        for layer in event["layers"]:
            of = by_name[layer["layer"]]
            assert of.block_bytes == layer["block_bytes"]
            assert (of.stride_bytes, of.payload) == (layer["stride_bytes"], layer["payload"])
            assert list(of.block_shape) == layer["block_shape"]
    ours = [row for row in evidence.rows() if row[0] == "prefill"]
    assert [dict(zip(HEAD, row, strict=True))["ranks"] for row in ours] == ["0, 1"] * len(ours)
    first = caches.layers[0]
    assert str(first).startswith(
        f"{len(first.names)} layers: block {first.block_bytes:,} B, stride"
    )


def test_registered_caches_that_differ_are_told_with_both_sides() -> None:
    """Of a layer, or of one rank among equal ones; the numbers of blocks may differ."""
    good = logs()
    line = next(of for of in good["decode"].splitlines() if "caches-registered" in of)
    event = json.loads(line[line.index("{") :])
    prefix = line[: line.index("{")]
    more = prefix + json.dumps({**event, "blocks": 7}, sort_keys=True)
    assert compare({**good, "decode": more}).passed
    event["layers"][2]["block_bytes"] += 1
    other = prefix + json.dumps(event, sort_keys=True)
    for log in (other, f"{good['decode']}\n{other}"):
        evidence = compare({**good, "decode": log})
        assert not evidence.passed
        assert "prefill and decode differ:\n  prefill: " in evidence.said
        assert "\n  decode: " in evidence.said


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("INFO Using HND KV cache layout.", "decode has logged no caches-registered"),
        ('INFO {"event": "caches-registered", "layers": [', "decode: a line about registered"),
        (
            'INFO {"event": "caches-registered", "role": "consumer"}',
            "cannot be read: Object missing",
        ),
        (
            'INFO {"event": "caches-registered", "role": "consumer", "rank": 0, "blocks": "7"}',
            "`int`",
        ),
        ('INFO {"event": "caches-registered", "x": ' + "[" * 9999, "cannot be read: "),
    ],
)
def test_caches_of_which_nothing_is_told_are_a_failure(log: str, said: str) -> None:
    """Silence is no evidence, and neither is half a line."""
    evidence = compare({**logs(), "decode": log})
    assert not evidence.passed
    assert said in evidence.said
    assert {row[0] for row in evidence.rows()} == {"prefill"}


def test_a_log_alone_is_compared_with_nothing() -> None:
    """Which is a failure, unless somebody else is known to have started the decode engine."""
    alone = {"prefill": logs()["prefill"]}
    evidence = compare(alone)
    assert not evidence.passed
    assert "the log of decode is not here, so nothing was compared" in evidence.said
    evidence = compare(alone, elsewhere=["decode"])
    assert evidence.passed
    assert evidence.said == "only the log of prefill is here, so nothing was compared"


def test_logs_that_are_not_of_two_engines_are_refused() -> None:
    """One given twice, given in the other's place, or of both engines."""
    ours, theirs = logs().values()
    for prefill, decode, wrong in (
        (ours, ours, "decode has logged caches of a producer, and is a consumer"),
        (theirs, theirs, "prefill has logged caches of a consumer, and is a producer"),
        (theirs, ours, "prefill has logged caches of a consumer, and is a producer"),
        (f"{ours}\n{theirs}", theirs, "prefill has logged caches of a consumer"),
    ):
        evidence = compare({"prefill": prefill, "decode": decode})
        assert not evidence.passed
        assert wrong in evidence.said


def test_a_server_that_ends_at_once_stops_the_run(tmp_path: Path) -> None:
    """Exit code 1, with its name and the end of its log; the others are ended."""
    words = command(tmp_path)
    words[words.index("--decode") + 1] = "sh -c 'echo verify_reads=all: no GPU; exit 3'"
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "decode has ended with exit code 3\nverify_reads=all: no GPU" in done.stdout
    assert "FAIL registered caches: " in done.stdout
    assert json.loads((tmp_path / "load.json").read_text())["passed"] is False


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--prefill", "serve"], 'do not both set "verify_reads": "all"; do, or say --unverified'),
        (["--decode", "serve --verify_reads off"], 'do not both set "verify_reads": "all"'),
        (["--trace", "no/such"], "no/such: cannot be read"),
        (["--requests", "0"], "requests"),
        (
            ["--control-url", "http://u", "--decode-url", "http://u"],
            "--control-url http://u answers from what was",
        ),
        (
            ["--control-url", "http://localhost:9", "--decode-url", "http://127.0.0.1:9"],
            "--control-url http://localhost:9 answers from what was",
        ),
        (["--act", "bombed"], "invalid choice: 'bombed'"),
    ],
)
def test_the_command_explains_itself(
    more: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 before anything is started."""
    with pytest.raises(SystemExit) as ended:
        main([*command(tmp_path)[3:], *more])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_nothing_of_an_earlier_run_is_evidence(tmp_path: Path) -> None:
    """Its logs and its report are gone before anything is looked at."""
    left = [tmp_path / name for name in ("load.json", "load.html", "load.sha256")]
    left += [tmp_path / f"{name}.log" for name in ("prefill", "decode", "control", "router")]
    for path in left:
        path.write_text("of an earlier run")
    with pytest.raises(SystemExit):
        main([*command(tmp_path)[3:], "--trace", "no/such"])
    assert [path.name for path in left if path.exists()] == []


def test_an_engine_that_somebody_else_has_started_is_not_struck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path)[3:]
    place = words.index("--decode")
    with pytest.raises(SystemExit) as ended:
        main([*words[:place], *words[place + 2 :], "--act", "decode-killed"])
    assert ended.value.code == 2
    assert "--act decode-killed needs --decode" in capsys.readouterr().err


def test_reads_of_an_engine_of_somebody_else_have_to_be_verified(tmp_path: Path) -> None:
    """Its metrics tell, whoever has started it."""
    good = asyncio.run(undisturbed(tmp_path))
    assert (good["outcome"], good["caveats"]) == ("pass", [])
    bad = asyncio.run(undisturbed(tmp_path, verified=1))
    assert bad["outcome"] == "FAIL"
    assert seen_as(bad, False) == {(f"every load is verified ({WANTED})", "2 of 4 loads")}


def test_other_answers_than_the_controls_are_told(tmp_path: Path) -> None:
    """In the verdict if there are no equal ones; an empty one is none."""

    def answering(text: str) -> Callable[[list[FakeEngine]], None]:
        return lambda engines: setattr(engines[1], "answer", lambda _prompt: text)

    other = asyncio.run(undisturbed(tmp_path, change=answering("four")))
    assert (other["outcome"], len(other["caveats"])) == ("pass", 1)
    assert other["caveats"][0].startswith("no answer is the control's (undisturbed; again")
    empty = asyncio.run(undisturbed(tmp_path, change=answering("")))
    assert empty["outcome"] == "FAIL"
    assert ("answers are the control's", "0 of 0 the same") in seen_as(empty, None)
    seen = [check["seen"] for phase in empty["phases"] for check in phase["checks"]]
    assert any("0 of 2 served" in one and "the completion is empty" in one for one in seen)


def test_what_was_not_looked_at_is_in_the_verdict(tmp_path: Path) -> None:
    """That reads were not verified, and that there was one log only, in JSON, page and verdict."""
    found = asyncio.run(undisturbed(tmp_path, verified=1, is_verified=False))
    assert (found["outcome"], found["caveats"]) == ("pass", [UNVERIFIED])
    found["caveats"].append(NOT_COMPARED)
    registered = compare({"prefill": logs()["prefill"]}, elsewhere=["decode"])
    found |= {"registered": registered.document()}
    told = list(lines(found))
    assert "pass, reads unverified, registered caches not compared" in told
    assert "??   registered caches: only the log of prefill" in "\n".join(told)
    whole = page({**found, "boot": {}, "files": {}}, "digest")
    assert "pass, reads unverified, registered caches not compared" in whole
    assert "Caveat: reads unverified." in whole


@pytest.mark.parametrize(
    ("command", "is_verified"),
    [
        ("""vllm serve m --kv-transfer-config '{"verify_reads": "all", "a": 1}'""", True),
        (r"vllm serve m --kv-transfer-config {\"verify_reads\":\"all\"}", True),
        ("""vllm serve m --kv-transfer-config '{"verify_reads": "off", "b": "all"}'""", False),
        ("""vllm serve m --kv-transfer-config '{"verify_reads": "allowed"}'""", False),
    ],
)
def test_a_command_that_verifies_is_known(command: str, is_verified: bool) -> None:
    """However it is quoted; another value is none."""
    assert verifies(command) == is_verified


def test_requests_are_the_trace_within_limits(tmp_path: Path) -> None:
    """Equal beginnings stay equal; another seed has the same shape and no token in common place."""
    limits = Limits(6, 550, 3, 0.1, 1000)
    path = write_trace(tmp_path / "trace.jsonl")
    first, other = (requests_of(path, limits, seed=seed) for seed in (0, 1))
    assert [(len(one.prompt), one.max_tokens) for one in first] == [(550, 3)] * 6
    assert [one.at_s for one in first] == pytest.approx([n * 0.0025 for n in range(6)])
    assert first[0].prompt[:512] == first[3].prompt[:512] != first[1].prompt[:512]
    assert first[0].prompt[:32] != other[0].prompt[:32]
    assert max(max(one.prompt) for one in first) < 1000


@pytest.mark.parametrize(
    ("reply", "passed"),
    [
        (Reply("before", 200, " 5", None, 0.0, 9.0), None),
        (Reply("after", 200, " 5", None, 5.1, 6.0), None),
        (Reply("failed before", 502, "", "gone", 0.0, 1.9), None),
        (Reply("meanwhile", 200, " 5", None, 2.5, 3.0), True),
        (Reply("failed by it", 502, "", "gone", 0.0, 2.1), True),
    ],
)
def test_an_act_that_no_request_meets_tells_nothing(reply: Reply, passed: bool | None) -> None:
    """As of one request, which is over or under way when an engine is stopped for a while."""
    assert act_was_met([reply], 2.0, 5.0).passed is passed


def test_what_fails_has_to_say_so() -> None:
    """By a server's status, in time; a connection that is cut says nothing."""
    assert errors_are_told([GOOD, LOST], 5, expected=True).passed
    assert errors_are_told([GOOD], 5, expected=False).passed
    assert not errors_are_told([GOOD], 5, expected=True).passed
    assert not errors_are_told([GOOD, LOST], 0.5, expected=True).passed
    cut = errors_are_told([GOOD, LOST, CUT], 5, expected=True)
    assert not cut.passed
    assert "1 without a server's error" in cut.seen
    assert "req-2: status 0" in cut.seen


def test_checks_of_answers_and_counters() -> None:
    """Each passes and fails by what it is about."""
    other = Reply("req-0", 200, " 6")
    assert not all_served("all", [GOOD, LOST]).passed
    assert same_answers([GOOD, LOST], [GOOD, GOOD], exact=True).passed
    assert not same_answers([GOOD], [other], exact=True).passed
    assert same_answers([GOOD], [other], exact=False).seen == "0 of 1 the same; first other: req-0"
    none = Counters(0, 0, 0, 0, 0, 0)
    some, unknown = (
        replace(none, drafts=10, draft_tokens=10, accepted_tokens=8, loads=4),
        Counters(),
    )
    assert blocks_were_read(some, expected=True).passed
    assert not blocks_were_read(none, expected=True).passed
    assert blocks_were_read(none, expected=False).passed
    assert blocks_were_read(replace(some, failed_loads=1), expected=True).passed is False
    for missing in ("loads", "failed_loads"):
        assert blocks_were_read(replace(some, **{missing: None}), expected=False).passed is False
    assert not blocks_were_read("no metrics", expected=True).passed
    assert loads_are_verified(replace(some, verified_loads=4), expected=True).passed
    assert not loads_are_verified(replace(some, verified_loads=3), expected=False).passed
    for missing in ("loads", "verified_loads"):
        assert loads_are_verified(replace(none, **{missing: None}), expected=False).passed is False
    assert not loads_are_verified(none, expected=True).passed
    assert loads_are_verified(none, expected=False).passed
    assert not loads_are_verified("no metrics", expected=False).passed
    assert control_loads_nothing(none).passed
    assert not control_loads_nothing(some).passed
    assert control_loads_nothing(unknown).passed, "it has no connector"
    assert not control_loads_nothing(replace(none, failed_loads=1)).passed
    assert not control_loads_nothing(replace(none, failed_loads=None)).passed
    assert not control_loads_nothing("no metrics").passed
    for behind, beside, passed, without in (
        (some, some, True, False),
        (none, none, None, True),
        (unknown, unknown, None, True),
        (replace(some, accepted_tokens=5), some, False, False),
        (none, some, False, False),
        (some, none, False, False),
        (none, "no metrics", False, False),
    ):
        assert drafts_are_accepted(behind, beside, 0.1, expected=True).passed is passed
        assert drafts_are_accepted(behind, beside, 0.1, expected=False).passed is without
    assert since(none, some) == since(unknown, some) == some
    assert since(some, unknown) == unknown
    assert since("no metrics", some) == since(some, "no metrics") == "no metrics"
    assert str(since(some, none)).startswith("counters have fallen")
