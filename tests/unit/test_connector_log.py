"""The connector's events and docs/connector-log.md say the same."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from connector import logs
from tests.connector_events import Events, logged

ROOT = Path(__file__).parents[2]
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error"}
LEVEL_OF = {**LEVELS, "exception": "error"}
ROW = re.compile(r"^\| `([a-z-]+)` \| (debug|info|warning|error) \| (.*?) \| .* \|$")


@dataclass
class Event:
    """Its level, and the fields that no other event need have."""

    level: str
    fields: set[str] = field(default_factory=set)


def documented() -> dict[str, Event]:
    rows = (ROW.match(line) for line in (ROOT / "docs/connector-log.md").read_text().splitlines())
    found = {row[1]: Event(row[2], set(re.findall(r"`([a-z_]+)`", row[3]))) for row in rows if row}
    assert len(found) > 15
    return found


def common_fields() -> set[str]:
    text = (ROOT / "docs/connector-log.md").read_text().partition("## Start-up")[0]
    return set(re.findall(r"^\| `([a-z_]+)` \|", text, re.M))


def emitted() -> dict[str, Event]:
    """Every call of a log in the connector's code: name, level, and the fields that it gives."""
    found: dict[str, Event] = {}
    for path in sorted((ROOT / "connector").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _is_log_call(node):
                assert isinstance(node.func, ast.Attribute)
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{path}:{node.lineno}: not a constant"
                level = LEVEL_OF[node.func.attr]
                event = found.setdefault(str(name.value), Event(level))
                assert event.level == level, f"{name.value} has two levels"
                event.fields |= {keyword.arg for keyword in node.keywords if keyword.arg}
                if node.func.attr == "exception":
                    event.fields.add("exception")
    return found


def _is_log_call(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVEL_OF
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant | ast.JoinedStr | ast.Name)
    )


def test_every_event_is_documented_and_every_documented_event_exists() -> None:
    """With its level and its own fields."""
    common = common_fields()
    code = {n: (e.level, e.fields - common) for n, e in emitted().items()}
    assert code == {n: (e.level, e.fields) for n, e in documented().items()}


def test_the_documented_version_is_that_of_the_code() -> None:
    text = (ROOT / "docs/connector-log.md").read_text()
    assert f"| `schema` | integer | {logs.SCHEMA};" in text


@pytest.fixture
def lines() -> Iterator[Events]:
    """What is logged, at level WARNING as in production."""
    logs._recent.clear()
    with logged(logging.WARNING) as heard:
        yield heard
    logs._recent.clear()


def test_a_flight_record_has_what_was_below_the_level_and_concerns_the_failure(
    lines: Events,
) -> None:
    """What is about the request, or about its peer and nobody else; bound to both."""
    log = logs.log.bind(role="consumer", half="worker", rank=3)
    log.debug("load-moved", request="a", peer="p:1", because="x", state="y")
    log.debug("load-moved", request="b", peer="p:1", because="x", state="y")
    log.debug("peer-unprotected", peer="p:1", reason="r")
    log.debug("peer-unprotected", peer="q:1", reason="r")
    logs.dump(log.bind(request="a", transfer="t", peer="p:1"), "a", "p:1")
    (record,) = lines
    assert record["event"] == "flight-record"
    assert (record["request"], record["transfer"]) == ("a", "t")
    assert (record["peer"], record["rank"]) == ("p:1", 3)
    about = [(e["event"], e.get("request"), e["peer"]) for e in record["events"]]
    assert about == [("load-moved", "a", "p:1"), ("peer-unprotected", None, "p:1")]


def test_the_flight_recorder_is_bounded(lines: Events) -> None:
    """In memory and in what it writes; records are not recorded."""
    for number in range(5_000):
        logs.log.debug("load-moved", request="a", because=str(number), state="y")
    assert len(logs._recent) == 1_024
    logs.dump(logs.log.bind(request="a"), "a")
    logs.dump(logs.log.bind(request="a"), "a")
    assert [len(record["events"]) for record in lines] == [64, 64]
    assert lines[1]["events"][-1]["because"] == "4999"
    assert len(logs._recent) == 1_024
