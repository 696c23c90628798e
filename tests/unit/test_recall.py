"""Questions about long texts, asked through the shipped router of engines that read the prompt."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest
from aiohttp import web
from fake_engines import FakeEngine
from load_runs import assert_sealed, engine_log
from recall_deployment import Deployment, counted, forget_half, remember

from hw_tests.outcome import NO_DRAFTS, NOT_COMPARED, UNVERIFIED
from hw_tests.recall import attribution
from hw_tests.recall.__main__ import main
from hw_tests.recall.texts import MAX_NEEDLES


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    with Deployment().running() as running:
        yield running


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


def test_nothing_is_lost_where_all_is_handed_over(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each code of each text is asked for twice on each arm, and found; exit code 0."""
    code, document = deployment.ask(out, "--words", "120,400", "--seeds", "2")
    assert (code, document["passed"]) == (0, True)
    assert document["verdict"] == "pass, registered caches not compared: " \
        "none of the control's 24 right answers is wrong behind the router"  # fmt: skip
    rows = [(row["words"], row["hit"], row["asked"]) for row in document["rows"]]
    assert rows == [(words, hit, asked) for words in (120, 400)
                    for hit, asked in (("none", 2), ("part", 4), ("whole", 6))]  # fmt: skip
    for row in document["rows"]:
        assert row["found"] == {"router": row["asked"], "control": row["asked"]}
        assert row["same"] == row["asked"]
    text = capsys.readouterr().out
    assert "400 words, seed 1: router found 6 of 6, control found 6 of 6" in text
    assert str(out.with_suffix(".html")) in text
    for said in (text, document["note"], out.with_suffix(".html").read_text()):
        assert "unverified on hardware" in said


def test_a_question_is_asked_again_at_once_word_for_word(deployment: Deployment, out: Path) -> None:
    """So the second time the decode engine has the whole prompt; both arms get the same."""
    deployment.ask(out)
    prompts = [body["prompt"] for body in deployment.decode.received]
    assert len(prompts) == 6
    assert prompts[::2] == prompts[1::2]
    assert len(set(prompts)) == 3
    assert prompts == [body["prompt"] for body in deployment.control.received]
    assert {(body["temperature"], body["max_tokens"]) for body in deployment.decode.received} == {
        (0, 64)
    }


def test_codes_that_only_the_control_finds_are_lost(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A decode engine that has half of the text: exit code 1, and each lost code by its place."""
    deployment.decode.answer = forget_half
    code, document = deployment.ask(out)
    assert (code, document["passed"]) == (1, False)
    lost = {tuple(question) for question in document["lost"]}
    depths: dict[bool, list[float]] = {True: [], False: []}
    for answer in document["answers"]:
        if answer["arm"] == "router":
            place = (answer["words"], answer["seed"], answer["needle"], answer["hit"])
            assert answer["found"] == (place not in lost)
            depths[answer["found"]].append(answer["depth"])
    assert 0 < len(lost) < 6
    assert max(depths[False]) < min(depths[True])
    assert f"FAIL: {len(lost)} of the control's 6 right answers" in capsys.readouterr().out
    assert {one["why"] for one in document["attribution"]} == {attribution.TWICE}
    page = out.with_suffix(".html").read_text()
    assert "Codes lost behind the router" in page
    assert attribution.TWICE in page


def test_logs_of_the_engines_are_evidence_of_their_caches(
    deployment: Deployment, out: Path
) -> None:
    """Both sides' layers are in the report; a log without them makes a good run a failure."""
    logs = [out.with_name(name) for name in ("producer", "consumer")]
    for path in logs:
        path.write_text(engine_log(path.name))
    code, document = deployment.ask(
        out, "--prefill-log", str(logs[0]), "--decode-log", str(logs[1])
    )
    assert (code, document["registered"]["passed"], document["caveats"]) == (0, True, [])
    assert document["verdict"].startswith("pass: none of the control's")
    page = out.with_suffix(".html").read_text()
    assert "prefill and decode have registered the same" in page
    assert "<td>decode</td><td>consumer</td><td>0, 1</td>" in page
    assert set(document["files"]) == {"report.prefill.log", "report.decode.log"}
    assert_sealed(out)
    logs[1].write_text("INFO: nothing")
    code, document = deployment.ask(
        out, "--prefill-log", str(logs[0]), "--decode-log", str(logs[1])
    )
    assert (code, document["registered"]["passed"]) == (1, False)
    assert document["verdict"].startswith("FAIL: decode has logged no caches-registered")


def test_a_control_that_finds_nothing_proves_nothing(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no arm finds cannot be lost, not even at one length of two: that is no pass, and no
    failure either; exit code 3."""
    deployment.decode.answer = deployment.control.answer = lambda prompt: f" {len(prompt)}"
    code, document = deployment.ask(out)
    assert (code, document["passed"], document["outcome"]) == (3, False, "INCOMPLETE")
    assert document["verdict"].startswith("INCOMPLETE: the control found 0 of 6 codes in 120 words")
    assert "--same-words" in document["verdict"]
    assert document["verdict"] in capsys.readouterr().out
    page = out.with_suffix(".html").read_text()
    assert f'<p class="verdict bad">{document["verdict"]}</p>' in page

    def remember_short(prompt: str) -> str:
        return remember(prompt) if len(prompt) < 1500 else " no idea"

    deployment.decode.answer = deployment.control.answer = remember_short
    code, document = deployment.ask(out, "--words", "120,400")
    assert (code, document["outcome"]) == (3, "INCOMPLETE")
    assert "found 0 of 6 codes in 400 words, less than half" in document["verdict"]


def test_the_same_words_are_asked_for_where_no_code_can_be(
    deployment: Deployment, out: Path
) -> None:
    """Of a model with random weights: any other word is a failure, and the verdict says that recall
    was not judged."""
    deployment.decode.answer = deployment.control.answer = lambda prompt: f" {sum(prompt.encode())}"
    code, document = deployment.ask(out, "--same-words")
    assert (code, document["compares"]) == (0, "same words")
    assert document["verdict"] == (
        "pass, recall not judged, registered caches not compared: "
        "all 6 answers are the control's, word by word"
    )
    assert escape(document["verdict"]) in out.with_suffix(".html").read_text()
    deployment.decode.answer = forget_half
    deployment.control.answer = remember
    code, document = deployment.ask(out, "--same-words", "--first-seed", "1")
    assert (code, document["outcome"]) == (1, "FAIL")
    same = sum(row["same"] for row in document["rows"])
    assert document["verdict"].startswith(
        f"FAIL: {6 - same} of 6 answers are not the control's, word by word"
    )
    deployment.control.answer = deployment.decode.answer = forget_half
    deployment.decode.answer = lambda prompt: forget_half(prompt) + " "
    assert deployment.ask(out, "--same-words")[0] == 1


@pytest.mark.parametrize("answer", ["", " the the the"])
def test_the_same_words_for_every_question_prove_nothing(
    answer: str, deployment: Deployment, out: Path
) -> None:
    """A model that says the same whatever it is asked has not read what was handed over."""
    deployment.decode.answer = deployment.control.answer = lambda _prompt: answer
    code, document = deployment.ask(out, "--same-words")
    assert (code, document["outcome"]) == (3, "INCOMPLETE")
    assert "the control answers every question alike" in document["verdict"]


def test_a_question_that_fails_is_told_with_the_cause(deployment: Deployment, out: Path) -> None:
    """The others are asked all the same; exit code 1."""
    deployment.prefill.status = 500
    code, document = deployment.ask(out)
    assert code == 1
    assert "6 questions failed" in document["verdict"]
    errors = {answer["arm"]: answer["error"] for answer in document["answers"]}
    assert "status 502" in errors["router"]
    assert deployment.prefill.url in errors["router"]
    assert errors["control"] is None
    assert [row["same"] for row in document["rows"]] == [0] * 3


def test_an_interrupted_run_leaves_the_texts_that_were_done(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a report like any other."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may ignore it

    def interrupt(prompt: str) -> str:
        if len(deployment.control.received) > 6:
            signal.raise_signal(signal.SIGINT)
        return remember(prompt)

    deployment.control.answer = interrupt
    try:
        with pytest.raises(SystemExit) as ended:
            deployment.ask(out, "--seeds", "2")
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    assert f"interrupted; {out}" in capsys.readouterr().err
    document = json.loads(out.read_text())
    assert {answer["seed"] for answer in document["answers"]} == {0}
    assert (document["passed"], document["verdict"]) == (
        False,
        "INCOMPLETE: 1 of 2 texts were asked about",
    )
    assert escape(document["verdict"]) in out.with_suffix(".html").read_text()


def test_acceptance_of_drafts_is_shown_side_by_side(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of what was counted during the run, by the decode engines behind the router; the first run
    is not counted in the second."""
    deployment.decode.metrics = counted(drafts=10, accepted=6, loads=8)
    deployment.control.metrics = counted(drafts=10, accepted=8)
    for _ in range(2):
        code, document = deployment.ask(out, "--acceptance-gap", "0.25")
        assert code == 0
        router, control = (document["arms"][arm]["counters"] for arm in ("router", "control"))
        assert (router["drafts"], router["acceptance"], router["loads"]) == (60, 0.6, 48)
        assert (control["drafts"], control["acceptance"], control["loads"]) == (60, 0.8, 0)
    assert re.search(r"acceptance +60.0% +80.0%", capsys.readouterr().out)
    assert "<td>60.0%</td><td>80.0%</td>" in out.with_suffix(".html").read_text()


def test_drafts_that_are_accepted_less_often_are_a_failure(
    deployment: Deployment, out: Path
) -> None:
    """By more than the gap; a whole side without drafts, too."""
    deployment.control.metrics = counted(drafts=10, accepted=8)
    for drafts, seen in ((10, "router 60.0%, control 80.0%"), (0, "router no drafts, control")):
        deployment.decode.metrics = counted(drafts, accepted=6, loads=1)
        code, document = deployment.ask(out)
        assert (code, document["passed"]) == (1, False)
        assert document["verdict"].startswith("FAIL: drafts are accepted as often")
        assert seen in document["verdict"]


def test_loads_that_are_not_verified_are_a_failure(deployment: Deployment, out: Path) -> None:
    """Unless that was said, which is then in the verdict; a run of which each load was is none."""
    deployment.decode.metrics = counted(loads=2, verified=1)
    code, document = deployment.ask(out)
    assert code == 1
    assert document["verdict"] == (
        'FAIL: every load is verified ("verify_reads": "all"): 6 of 12 loads'
    )
    code, document = deployment.ask(out, "--unverified")
    assert (code, document["caveats"]) == (0, [UNVERIFIED, NOT_COMPARED])
    assert document["verdict"].startswith("pass, reads unverified, registered caches not compared:")
    assert escape(document["verdict"]) in out.with_suffix(".html").read_text()
    deployment.decode.metrics = counted(loads=2)
    code, document = deployment.ask(out)
    assert (code, document["caveats"]) == (0, [NOT_COMPARED])


@pytest.mark.parametrize("more", [[], ["--unverified"]])
def test_nothing_that_was_handed_over_is_a_failure(
    more: list[str], deployment: Deployment, out: Path
) -> None:
    """A decode engine that computes all prompts itself answers right, and tells nothing."""
    deployment.decode.metrics = counted(loads=0)
    code, document = deployment.ask(out, *more)
    assert (code, document["outcome"]) == (1, "FAIL")
    assert "blocks are read, and no read fails: 0 loads" in document["verdict"]
    deployment.decode.metrics = counted(loads=2, failed=1)
    assert deployment.ask(out, *more)[0] == 1, "the answers were computed again"


def test_a_control_that_loads_is_a_failure(deployment: Deployment, out: Path) -> None:
    """As a decode engine does under another of its addresses."""
    deployment.control.metrics = counted(loads=1)
    code, document = deployment.ask(out)
    assert code == 1
    assert "FAIL: the control loads nothing: 6 loads" in document["verdict"]


def test_each_text_has_to_be_handed_over(deployment: Deployment, out: Path) -> None:
    """Loads of the first text say nothing of the second; the remedy is named."""
    deployment.decode.metrics = lambda requests: counted(loads=1)(min(requests, 6))
    code, document = deployment.ask(out, "--seeds", "2")
    assert (code, document["outcome"]) == (1, "FAIL")
    assert "each text is read: nothing of 120 words, seed 1" in document["verdict"]
    assert "--first-seed" in document["verdict"]


def test_a_server_that_counts_no_drafts_says_so(deployment: Deployment, out: Path) -> None:
    """Neither nought per cent nor an error, and no pass either, unless that was said."""
    deployment.decode.metrics = counted(drafts=0, accepted=0, loads=1)
    deployment.control.metrics = counted(drafts=0, accepted=0)
    code, document = deployment.ask(out)
    assert (code, document["outcome"]) == (3, "INCOMPLETE")
    assert "drafts are accepted as often" in document["verdict"]
    assert "say --no-drafts" in document["verdict"]
    assert document["arms"]["router"]["counters"]["acceptance"] is None
    page = out.with_suffix(".html").read_text()
    assert "<td>no drafts</td><td>no drafts</td>" in page
    assert "<td>??</td>" in page
    code, document = deployment.ask(out, "--no-drafts")
    assert (code, document["caveats"]) == (0, [NO_DRAFTS, NOT_COMPARED])


@pytest.mark.parametrize("name", ["loads", "failed_loads", "verified_loads"])
def test_loads_that_are_not_counted_are_a_failure(
    name: str, deployment: Deployment, out: Path
) -> None:
    """They are not nought: nobody knows them."""
    deployment.decode.metrics = counted(loads=1, leaves_out=f"hybrid_read_{name}")
    code, document = deployment.ask(out)
    assert code == 1
    assert "the decode engine does not count loads" in document["verdict"]


@pytest.mark.parametrize("name", ["prefill", "decode", "control"])
def test_an_engine_of_another_model_is_found_out(
    name: str, deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever it is, before anything is asked; what all serve is in the report."""
    deployment.ask(out)
    served = {"model": "a-model", "root": "a-model", "version": "0.33.0"}
    page = out.with_suffix(".html").read_text()
    assert list(json.loads(out.read_text())["engines"].values()) == [served] * 3
    assert page.count("<td>a-model</td><td>a-model</td><td>0.33.0</td>") == 3
    getattr(deployment, name).card["root"] = "/models/another"
    with pytest.raises(SystemExit) as ended:
        deployment.ask(out)
    assert ended.value.code == 2
    assert f"another of {name}" in capsys.readouterr().err


def test_metrics_that_cannot_be_read_are_a_failure(deployment: Deployment, out: Path) -> None:
    """As of a label without a name."""
    deployment.control.metrics = lambda _requests: 'vllm:hybrid_read_loads_total{""} 1\n'
    code, document = deployment.ask(out)
    assert code == 1
    assert f"not known: {deployment.control.url}/metrics is not" in document["verdict"]


@pytest.mark.parametrize("arm", ["decode", "control"])
def test_a_server_without_metrics_is_a_failure(arm: str, deployment: Deployment, out: Path) -> None:
    """The report says why nothing is known, and with --unverified that nothing is."""

    def none(_requests: int) -> str:
        raise web.HTTPNotFound

    engine: FakeEngine = getattr(deployment, arm)
    engine.metrics = none
    code, document = deployment.ask(out)
    assert (code, document["outcome"]) == (1, "FAIL")
    assert f"not known: {engine.url}/metrics cannot be read" in document["verdict"]
    unknown = document["arms"]["control" if arm == "control" else "router"]["counters"]["unknown"]
    assert f"{engine.url}/metrics cannot be read" in unknown
    code, document = deployment.ask(out, "--unverified")
    assert (code, document["verdict"][:23]) == (0, "pass, reads unverified,")


def test_a_control_that_is_an_arm_of_the_router_is_refused(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The router itself or a decode engine behind it would only be compared with itself."""
    decode = deployment.decode.url
    for url in (deployment.url, decode, decode.replace("127.0.0.1", "localhost")):
        with pytest.raises(SystemExit) as ended:
            deployment.ask(out, "--control-url", url)
        assert ended.value.code == 2
        assert f"--control-url {url} answers from what was handed over" in capsys.readouterr().err


def test_the_page_is_whole_and_shows_answers_as_they_are(deployment: Deployment, out: Path) -> None:
    """It loads nothing from elsewhere, and what a model says is never markup."""
    deployment.decode.answer = lambda _prompt: "<script>alert(1)</script>"
    deployment.ask(out)
    page = out.with_suffix(".html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"<script|src=|<link|@import", page)


def test_a_server_that_is_not_there_is_named(
    deployment: Deployment, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, before anything is asked."""
    urls = ["--url", deployment.url, "--control-url", "http://127.0.0.1:9"]
    with pytest.raises(SystemExit) as ended:
        main([*urls, "--words", "400", "--out", str(out)])
    assert ended.value.code == 2
    assert "http://127.0.0.1:9/v1/models does not name a model" in capsys.readouterr().err
    assert deployment.decode.received == []


def test_a_run_that_cannot_begin_leaves_no_earlier_report(
    deployment: Deployment, out: Path
) -> None:
    """Whoever looks for its outcome would read that of another run."""
    assert deployment.ask(out)[0] == 0
    with pytest.raises(SystemExit):
        deployment.ask(out, "--control-url", "http://127.0.0.1:9")
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--words", "20"], "20 words for 10 needles; expected 300 or more"),
        (["--words", "90000", "--needles", "2000"], f"expected 1 to {MAX_NEEDLES}"),
        (["--words", "2k"], "'2k'; expected a whole number above 0"),
        (["--words", "2000", "--out", "/proc/such/a.json"], "expected a folder that can be made"),
        (["--words", "400", "--prefill-log", __file__], "name both or none"),
        (["--words", "2000", "--out", "report.html"], "'report.html'; expected NAME.json"),
        (["--help"], "--control-url URL"),
    ],
)
def test_the_command_explains_itself(
    arguments: list[str], told: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments end with exit code 2 and what is expected; nobody is asked."""
    urls = ["--url", "http://127.0.0.1:9", "--control-url", "http://127.0.0.1:9"]
    with pytest.raises(SystemExit) as ended:
        main([*urls, "--out", str(out), *arguments])
    assert told in "".join(capsys.readouterr())
    assert ended.value.code == (0 if "--help" in arguments else 2)
