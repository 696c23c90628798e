from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.corpus import entry as corpus
from faults.corpus.entry import OWN, UPSTREAM, Entry, Expected, load_entry, names

PAGE = Path(__file__).parents[2] / "docs/corpus.md"
_ROW = re.compile(r"^\| `([\w-]+)` \| (.+) \|$", re.MULTILINE)
_REPORT = re.compile(r"[\w-]+/[\w-]+#\d+")


def row(entry: Entry) -> str:
    """The cells of ``entry`` on the page, after its name."""
    rules = ", ".join(entry.upstream.expected.violations) or "none"
    own = entry.hybrid.falls_short or entry.hybrid.expected.requests_in_words
    cells = (entry.report, entry.symptom, entry.upstream.status, rules, entry.hybrid.must, own)
    return " | ".join(cells)


def test_the_page_says_what_the_files_say() -> None:
    """One row for each entry, in order, word for word."""
    expected = [(name, row(load_entry(name))) for name in names()]
    assert _ROW.findall(PAGE.read_text(encoding="utf-8")) == expected


@pytest.mark.parametrize("name", names())
def test_an_entry_can_be_run_with_both_connectors(name: str) -> None:
    """Its scenario and its faults are accepted, and it names its report."""
    entry = load_entry(name)
    assert _REPORT.fullmatch(entry.report)
    assert entry.report.rpartition("#")[2] in name
    for connector in (UPSTREAM, OWN):
        assert entry.scenario_with(connector, source=name).connector == connector


def test_an_extra_setting_of_upstream_is_not_given_to_others() -> None:
    """WRITE mode is the mode of a report, and no mode of this project's connector."""
    entry = load_entry("vllm-46283")
    assert entry.scenario_with(UPSTREAM, source="x").extra_config["read_mode"] == "false"
    assert "read_mode" not in entry.scenario_with(OWN, source="x").extra_config


def test_an_unknown_entry_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest one is suggested, before anything is loaded or run."""
    assert dispatch.run(["corpus", "vllm-40341"]) == ExitCode.BAD_USAGE
    assert "vllm-40340" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [("symptom: 3", "symptom: is 3, expected text"), ("symptoms: a", "symptoms: unknown key")],
)
def test_a_file_that_is_not_accepted_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """With the key, as for scenarios."""
    source = (corpus.DIRECTORY / "vllm-46283.yaml").read_text(encoding="utf-8")
    broken = re.sub(r"^symptom: .*$", text, source, flags=re.MULTILINE)
    (tmp_path / "broken.yaml").write_text(broken, encoding="utf-8")
    monkeypatch.setattr(corpus, "DIRECTORY", tmp_path)
    with pytest.raises(corpus.UsageError, match=message):
        load_entry("broken")


def test_what_is_reproduced_breaks_a_rule() -> None:
    """And what falls short of the rules says in what."""
    document = msgspec.to_builtins(load_entry("vllm-46283"))
    document["upstream"]["expected"]["violations"] = []
    with pytest.raises(msgspec.ValidationError, match="not 'reproduced'"):
        msgspec.convert(document, Entry)
    document = msgspec.to_builtins(load_entry("vllm-46283"))
    document["hybrid"]["expected"]["violations"] = ["leak"]
    with pytest.raises(msgspec.ValidationError, match="falls_short"):
        msgspec.convert(document, Entry)


def test_a_difference_ends_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command tells what was expected and what was found, for people and as JSON."""
    entry = load_entry("vllm-46283")
    other = msgspec.structs.replace(entry.hybrid, expected=Expected({"length": 1}))
    changed = msgspec.structs.replace(entry, hybrid=other)
    (tmp_path / "changed.yaml").write_bytes(msgspec.yaml.encode(changed))
    monkeypatch.setattr(corpus, "DIRECTORY", tmp_path)
    arguments = ["corpus", "changed", "--connector", OWN]
    assert dispatch.run(arguments) == ExitCode.VIOLATION
    assert "expected 1 length, and no broken rule" in capsys.readouterr().out
    assert dispatch.run([*arguments, "--json"]) == ExitCode.VIOLATION
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["differences"]) == (1, 1)
    (run,) = document["runs"]
    assert run["verdict"] == "different"
    assert run["found"]["requests"] == {"abort": 1}


def test_any_connector_has_to_break_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else is expected of one that the files do not know."""
    arguments = ["corpus", "vllm-46283", "--connector", "reference", "--json"]
    assert dispatch.run(arguments) == ExitCode.OK
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["expected"] is None
    assert run["found"]["violations"] == []
