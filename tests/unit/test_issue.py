from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from faults import artifact
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.issue import self_contained, write
from sim.scenario import InlineRequest, InlineWorkload, Scenario, load
from sim.workload import Segment

FAILING = ["run", "--set", "num_blocks=50", "--hold", "req-0=2.5", "--set",
           "workload={kind: uniform, requests: 8, prompt_tokens: [256, 256], "
           "output_tokens: [4, 4], interval_ms: 250}",
           "--extra-config", '{"defer_timeout": 0.5}']  # fmt: skip


HOSTILE = (
    "step failed on gpu7.example.com (10.9.8.7, fe80::1): prompt='the launch code'\\n"
    'File "/data/jane doe/srv/core.py", line 3, peer jane@node-17, tcp://node-17:6301'
)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_issue_holds_all_that_is_needed_and_its_file_fails_in_the_same_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Findings, story, versions, hashes and the line that shows it; and nothing of this machine."""
    assert dispatch.run([*FAILING, "--out", "held"]) == ExitCode.VIOLATION
    assert dispatch.run(["issue", "held", "--out", "report"]) == ExitCode.OK
    text = Path("report/issue.md").read_text()
    for words in (
        "# wrong-bytes: d0 read wrong bytes for req-0-d0: those of req-5, req-7\n",
        "rules that were broken: same-output, use-after-free, wrong-bytes.",
        "repository `faultlab` (ask whoever sent this for it): `make setup`",
        "`faultlab replay failing`",
        "p0 lets go of the blocks of req-0-p0",
        "$ faultlab run reproducer.yaml --out failing",
        "It fails in this way",
        "| vllm |",
    ):
        assert words in text
    scenario = load(Path("report/reproducer.yaml"))
    assert isinstance(scenario.workload, InlineWorkload)
    for written in (text, Path("report/reproducer.yaml").read_text()):
        assert not re.search(r"\d+\.\d+\.\d+\.\d+", written)
        assert str(Path.cwd()) not in written
        assert "/tmp/" not in written
    _require_silence_about(Path("held"), scenario)
    capsys.readouterr()
    assert dispatch.run(["issue", "held", "--out", "report"]) == ExitCode.BAD_USAGE
    assert "issue.md: exists already" in capsys.readouterr().err


def test_an_issue_tells_where_to_get_faultlab_and_what_came_instead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The address that was given, what was expected, and which rules are new."""
    assert dispatch.run([*FAILING, "--out", "held"]) == ExitCode.VIOLATION
    recorded = artifact.read_outcome(Path("held"))
    assert isinstance(recorded.rules, list)
    url = "https://git.example.com/kv/faultlab.git"
    for rules, words in (
        ([rule for rule in recorded.rules if rule not in ("leak", "zeroing")], ["leak", "zeroing"]),
        (msgspec.UNSET, []),
    ):
        other = msgspec.structs.replace(recorded, signature=["leak"], rules=rules).sealed()
        Path("held/artifact.json").write_bytes(msgspec.json.encode(other))
        assert dispatch.run(["issue", "held", "--force", "--repository", url]) == ExitCode.OK
        text = Path("held/issue.md").read_text()
        assert f"repository `faultlab` ({url}): `make setup`" in text
        assert (
            "does not fail in this way here: expected that it breaks leak, and it breaks "
            "same-output, use-after-free, wrong-bytes."
        ) in text
        new = f"When it was recorded there was no rule {', '.join(words)}."
        assert (new in text) == bool(words)
        assert ("When it was recorded" in text) == bool(words)


def _require_silence_about(directory: Path, scenario: Scenario) -> None:
    """What a hostile run has logged is in its issue, and nothing that tells of anybody."""
    recorded = artifact.read_outcome(directory)
    records = [
        record._replace(fields={**record.fields, "message": HOSTILE})
        if record.kind == "log"
        else record
        for record in artifact.read_records(directory, recorded)
    ]
    first, *others = recorded.violations
    hostile = msgspec.structs.replace(first, detail=f"found: {HOSTILE}")
    recorded = msgspec.structs.replace(recorded, violations=[hostile, *others])
    text = write(recorded, records, scenario, what="llama", again="", has_overlay=True).text
    assert text.count("step failed") >= 2
    for secret in ("jane", "gpu7", "10.9.8.7", "fe80", "node-17", "launch", "srv"):
        assert secret not in text


def test_a_run_that_broke_no_rule_is_no_issue(capsys: pytest.CaptureFixture[str]) -> None:
    """And the message says so."""
    dispatch.run(["run", "--requests", "1", "--set", "length_scale=0.02", "--out", "kept"])
    capsys.readouterr()
    assert dispatch.run(["issue", "kept"]) == ExitCode.BAD_USAGE
    assert "kept: broke no rule" in capsys.readouterr().err


def test_contents_are_counted_anew_and_stay_equal_where_they_were() -> None:
    """The ids of a trace's prompts, addresses and paths do not come along."""
    prompts = ([(9001, 16), (9002, 4)], [(9001, 16), (9003, 4)])
    scenario = Scenario(
        overlay="/srv/sources/vllm",
        extra_config={"proxy_ip": "10.1.2.3", "folder": "/srv/somewhere", "defer_timeout": 5},
        workload=InlineWorkload(
            tuple(
                InlineRequest(f"r{number}", tuple(Segment(*part) for part in prompt), 4)
                for number, prompt in enumerate(prompts)
            )
        ),
    )
    small = self_contained(scenario)
    assert isinstance(small.workload, InlineWorkload)
    assert [[tuple(part) for part in request.prompt] for request in small.workload.requests] == [
        [(1, 16), (2, 4)],
        [(1, 16), (3, 4)],
    ]
    assert small.overlay is None
    assert small.extra_config == {"proxy_ip": "192.0.2.1", "folder": "/shared", "defer_timeout": 5}
