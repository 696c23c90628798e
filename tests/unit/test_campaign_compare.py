from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from faults.campaign import campaign
from faults.campaign.compare import compare, drawn_alike
from faults.campaign.result import Failure, SeedResult
from faults.campaign.swarm import SwarmOptions, scenario_of
from faults.campaign.worker import Job
from faults.cli import dispatch
from faults.cli.outcome import ExitCode


def failed(seed: int, *groups: str) -> SeedResult:
    failures = [Failure(group, group.partition("/")[0], f"{group} in {seed}") for group in groups]
    return SeedResult(seed=seed, status="failed", failures=failures, artifact=f"at/{seed}")


def passed(seed: int) -> SeedResult:
    return SeedResult(seed=seed, status="passed")


def names(entries: list[dict[str, object]]) -> list[object]:
    return [entry["group"] for entry in entries]


BEFORE = [failed(1, "leak/producer"), failed(2, "same-output"), passed(3)]
AFTER = [failed(1, "leak/producer"), passed(2), failed(3, "wrong-bytes/consumer", "leak/producer")]


def test_groups_are_new_fixed_or_unchanged() -> None:
    """With the seeds of both sides, and the words of the side on which it can be seen now."""
    document = compare(BEFORE, AFTER)
    assert document["compared"] == 3
    (new,), (fixed,), (same,) = (document[key] for key in ("new", "fixed", "unchanged"))
    assert (new["group"], new["seeds_before"], new["seeds_after"]) == (
        "wrong-bytes/consumer",
        [],
        [3],
    )
    assert (new["detail"], new["artifact"]) == ("wrong-bytes/consumer in 3", "at/3")
    assert (fixed["group"], fixed["seeds_before"], fixed["artifact"]) == (
        "same-output",
        [2],
        "at/2",
    )
    assert (same["seeds_before"], same["seeds_after"]) == ([1], [1, 3])


def test_the_other_way_round_new_is_fixed() -> None:
    """And what is unchanged stays so."""
    there, back = compare(BEFORE, AFTER), compare(AFTER, BEFORE)
    assert names(there["new"]) == names(back["fixed"])
    assert names(there["fixed"]) == names(back["new"])
    assert names(there["unchanged"]) == names(back["unchanged"])


def test_a_seed_that_says_nothing_about_one_side_is_not_compared() -> None:
    """What it says about the other would look new or fixed."""
    error = SeedResult(seed=3, status="error", detail="died")
    document = compare([*BEFORE[:2], error], AFTER)
    assert document["compared"] == 2
    assert document["new"] == []
    assert document["errors"] == [{"seed": 3, "side": "before", "detail": "died"}]
    assert compare(BEFORE[:2], AFTER)["new"] == []


def refused(seed: int, why: str = "no") -> SeedResult:
    return SeedResult(seed=seed, status="refused", detail=why)


def test_engines_that_start_no_longer_are_new() -> None:
    """A patch that refuses everything fails nothing else; each reason is told once."""
    before = [passed(1), passed(2), passed(3)]
    after = [refused(1, "d0: 3 ranks"), refused(2, "d1: 4 ranks"), refused(3, "no")]
    document = compare(before, after)
    (new,) = document["new"]
    assert (new["group"], new["seeds_after"]) == ("start-refused", [1, 2, 3])
    reasons = [(one["seeds"], one["smallest_seed"], one["detail"]) for one in new["reasons"]]
    assert reasons == [(2, 1, "d0: 3 ranks"), (1, 3, "no")]
    assert document["not_served"]["after"] == {"refused": 3, "failed-closed": 0}
    assert names(compare(after, before)["fixed"]) == ["start-refused"]


def test_only_a_seed_that_passed_can_be_lost() -> None:
    """One that failed and is refused now is no new failure, and its group is not said to be mended
    by that; one that neither side serves says nothing; some may be lost while others are won."""
    before = [failed(1, "same-output"), refused(2), passed(3), refused(4)]
    ended = SeedResult(seed=3, status="failed-closed", detail="ended")
    document = compare(before, [refused(1), refused(2), ended, passed(4)])
    assert names(document["new"]) == ["failed-closed"]
    (output,), (won,) = document["unjudged"], document["fixed"]
    assert (output["group"], output["not_served_after"]) == ("same-output", [1])
    assert (won["group"], won["seeds_before"]) == ("start-refused", [4])
    both = compare([passed(1), refused(2)], [refused(1), passed(2)])
    assert names(both["new"]) == names(both["fixed"]) == ["start-refused"]


def test_two_connectors_are_given_the_same_scenarios() -> None:
    """Models, engines, workloads and faults: what only one of them can do is not drawn."""
    for one, other in (("moriio", "hybrid"), ("hybrid", "reference")):
        is_alike = drawn_alike(
            SwarmOptions(connector=one, beside=other), SwarmOptions(connector=other, beside=one)
        )
        assert all(map(is_alike, range(200)))


def test_what_is_drawn_for_one_connector_only_is_not_lost() -> None:
    """Engines that disagree have to be refused, and are drawn only for connectors that can. Two
    campaigns that did not know of each other are compared where they are the same."""
    sides = SwarmOptions(), SwarmOptions(connector="hybrid")
    is_alike = drawn_alike(*sides)
    apart = next(
        seed for seed in range(100) if any(f["kind"] == "disagreement" for f in
        scenario_of(seed, sides[1]).faults)
    )  # fmt: skip
    alike = next(filter(is_alike, range(100)))
    assert names(compare([passed(apart)], [refused(apart)], is_alike)["new"]) == []
    assert names(compare([passed(alike)], [refused(alike)], is_alike)["new"]) == ["start-refused"]
    assert drawn_alike(sides[1], sides[1])(apart)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--connector", "moriio"], "both sides are moriio with the same sources"),
        (["--connector", "hybrid", "--connector", "hybrid"], "both sides are hybrid"),
        (["--connector", "a", "--connector", "b", "--connector", "c"], "is given 3 times"),
        (["--connector", "moriio", "--connector", "morio"], "moriio"),
        ([], "--connector"),
    ],
)
def test_sides_that_are_none_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything runs."""
    assert dispatch.run(["compare", "--seeds", "2", *arguments]) == ExitCode.BAD_USAGE
    assert said in " ".join(capsys.readouterr().err.split())


class FakePool:
    """Answers as if each connector had the failures that are given here."""

    def __init__(self, *_: object) -> None:
        self.sides = {"moriio": BEFORE, "hybrid": AFTER}

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, seeds: Iterator[int], make_job: Callable[[int], Job]) -> Iterator[SeedResult]:
        for seed in seeds:
            yield self.sides[make_job(seed).options.connector][seed - 1]


@pytest.mark.parametrize(
    ("group", "code", "skipped"),
    [("wrong-bytes/consumer", ExitCode.OK, 2), ("no/such-group", ExitCode.VIOLATION, 1)],
)
def test_known_groups_are_excused_and_old_ones_do_not_fail_a_test_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, code: ExitCode, skipped: int
) -> None:
    """Seed 1 fell into its group before as well, and seed 3 into a new one besides."""
    monkeypatch.setattr("faults.cli.compare.Pool", FakePool)
    monkeypatch.setattr(campaign, "sing", lambda pool: {})
    known, junit = tmp_path / "known.yaml", tmp_path / "junit.xml"
    known.write_text(f"- {{group: {group}, owner: me, link: there, expires: '2100-01-01'}}\n")
    arguments = ["--connector", "moriio", "--connector", "hybrid", "--known", str(known)]
    command = ["compare", "--seeds", "1:4", *arguments, "--junit", str(junit)]
    assert dispatch.run(command) == code
    suite = ElementTree.parse(junit).getroot()
    assert suite.get("name") == "faultlab compare"
    assert suite.get("tests") == "3"
    assert suite.get("skipped") == str(skipped)
    assert suite.get("failures") == str(2 - skipped)


def test_a_list_of_known_groups_that_cannot_be_read_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits for two campaigns to hear of a typing error; nothing is written either."""

    def no_pool(*_: object) -> None:
        raise AssertionError("workers were started")

    monkeypatch.setattr("faults.cli.compare.Pool", no_pool)
    out = tmp_path / "out"
    sides = ["--connector", "moriio", "--connector", "hybrid", "--out", str(out)]
    command = ["compare", "--seeds", "1:4", *sides, "--known", str(tmp_path / "gone.yaml")]
    assert dispatch.run(command) == ExitCode.BAD_USAGE
    assert "gone.yaml" in capsys.readouterr().err
    assert not out.exists()


def test_people_are_told_how_many_passed_and_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last lines name the directory, and the command that draws it."""
    monkeypatch.setattr("faults.cli.compare.Pool", FakePool)
    monkeypatch.setattr(campaign, "sing", lambda pool: {})
    monkeypatch.setattr(FakePool, "__init__", one_passes_before_and_two_after)
    out = tmp_path / "out"
    sides = ["--connector", "moriio", "--connector", "hybrid", "--out", str(out)]
    assert dispatch.run(["compare", "--seeds", "1:4", *sides]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "passed of 3 seeds: 1 before and 2 after",
        f"written to {out}",
        f"in a browser: faultlab report {out}",
    ]


def test_what_is_new_is_replayed_by_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a seed that is refused now is said to have passed, with the reason; JUnit fails it."""
    monkeypatch.setattr("faults.cli.compare.Pool", FakePool)
    monkeypatch.setattr(campaign, "sing", lambda pool: {})
    sides = ["--connector", "moriio", "--connector", "hybrid"]

    def said(*after: SeedResult) -> list[str]:
        before = [passed(1), passed(2), passed(3)]
        results = [before, list(after)]
        monkeypatch.setattr(FakePool, "run", lambda *_: (one for one in results.pop(0)))
        command = ["compare", "--seeds", "1:4", *sides, "--junit", str(junit)]
        assert dispatch.run(command) == ExitCode.VIOLATION
        return capsys.readouterr().out.splitlines()

    junit = tmp_path / "junit.xml"
    assert said(failed(1, "same-output"), passed(2), passed(3))[-1] == "faultlab replay at/1"
    told = said(passed(1), refused(2, "2 groups"), passed(3))
    assert "new: start-refused" in told
    assert "  seeds that passed before, and are refused now:" in told
    assert "    1 ×, as seed 2: 2 groups" in told
    assert told[-1] == "faultlab campaign --seeds 2:3 --connector hybrid --beside moriio"
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "0")


def test_a_group_that_nobody_judges_is_told_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its only seed is not served any more; the run before is there to be looked at."""
    monkeypatch.setattr("faults.cli.compare.Pool", FakePool)
    monkeypatch.setattr(campaign, "sing", lambda pool: {})
    results = [[failed(1, "same-output"), passed(2)], [refused(1), passed(2)]]
    monkeypatch.setattr(FakePool, "run", lambda *_: (one for one in results.pop(0)))
    sides = ["--connector", "moriio", "--connector", "hybrid"]
    assert dispatch.run(["compare", "--seeds", "1:3", *sides]) == ExitCode.OK
    told = capsys.readouterr().out
    assert "2 seeds compared; groups: 0 new, 0 fixed, 0 unchanged, 1 unjudged" in told
    assert "unjudged: same-output" in told
    assert "seeds before: 1; after: none (not served any more: 1)" in told
    assert "first seed 1: faultlab replay at/1" in told
    assert told.endswith("\nto keep and replay them: --out DIR\n")


def one_passes_before_and_two_after(pool: FakePool, *_: object) -> None:
    pool.sides = {"moriio": BEFORE, "hybrid": [BEFORE[0], passed(2), passed(3)]}
