"""docs/log-lines.md against vLLM: its lines are there, and the runs bring them about."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import vllm

from faults.cli import dispatch

PAGE = Path(__file__).parents[2] / "docs" / "log-lines.md"
ROWS = re.findall(r"^\| `([^`]+)` \| `faultlab ([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
COMMANDS = list(dict.fromkeys(command for _, command in ROWS))
VLLM = Path(vllm.__file__).parent
CONNECTOR = VLLM / "distributed" / "kv_transfer" / "kv_connector" / "v1" / "moriio"
SOURCES = [*sorted(CONNECTOR.glob("*.py")), VLLM / "v1" / "core" / "sched" / "scheduler.py"]


def pattern(line: str, placeholder: str) -> re.Pattern[str]:
    """``line`` with ``placeholder``, a pattern, for each of its ellipses."""
    return re.compile(placeholder.join(map(re.escape, line.split("…"))), re.DOTALL)


def logged() -> Iterator[str]:
    """The texts that vLLM's sources give to a logger."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                whose = node.func.value
                if isinstance(whose, ast.Name) and whose.id == "logger" and node.args:
                    text = node.args[0]
                    yield text.value if isinstance(text, ast.Constant) else ast.unparse(text)


def test_every_line_is_one_of_vllms() -> None:
    """In the installed version, as the page says."""
    texts = list(logged())
    missing = [
        line for line, _ in ROWS if not any(pattern(line, "%.*?").search(text) for text in texts)
    ]
    assert missing == []
    assert len(ROWS) > 8


@pytest.mark.parametrize("command", COMMANDS)
def test_the_run_beside_a_line_writes_it(command: str, tmp_path: Path) -> None:
    """Somewhere in its log, at warning or above."""
    out = tmp_path / "run"
    dispatch.run([*shlex.split(command), "--out", str(out)])
    records = map(msgspec.json.decode, (out / "events.jsonl").read_bytes().splitlines())
    messages = [r["message"] for r in records if r["kind"] == "log" and r["level"] != "INFO"]
    for line in (line for line, of in ROWS if of == command):
        assert any(pattern(line, ".*?").search(message) for message in messages), line
