from __future__ import annotations

import re
from pathlib import Path

import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.issue import plain, self_contained
from sim.scenario import InlineRequest, InlineWorkload, Scenario, load
from sim.workload import Segment

FAILING = ["run", "--set", "num_blocks=50", "--hold", "req-0=2.5", "--set",
           "workload={kind: uniform, requests: 8, prompt_tokens: [256, 256], "
           "output_tokens: [4, 4], interval_ms: 250}",
           "--extra-config", '{"defer_timeout": 0.5}']  # fmt: skip


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
        "# same-output, use-after-free, wrong-bytes: llama",
        "p0 lets go of the blocks of req-0-p0",
        "$ faultlab run reproducer.yaml",
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
    capsys.readouterr()
    assert dispatch.run(["issue", "held", "--out", "report"]) == ExitCode.BAD_USAGE
    assert "issue.md: exists already" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("read from 10.0.0.2:6301", "read from <address>:6301"),
        ("at ~/vllm/vllm/v1/core.py:12", "at core.py:12"),
        ("in /srv/here/x.yaml and /etc", "in x.yaml and <path>"),
        ("1P1D, 3/4 of 12.5 s, and/or blocks 1-2", "1P1D, 3/4 of 12.5 s, and/or blocks 1-2"),
        ("layers.0.self_attn.attn of p0/core/main", "layers.0.self_attn.attn of p0/core/main"),
    ],
)  # fmt: skip
def test_addresses_and_paths_are_taken_out_of_texts(text: str, left: str) -> None:
    """And what only looks like one stays."""
    assert plain(text) == left
