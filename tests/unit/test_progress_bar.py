from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

_CAMPAIGN = """
from faults.campaign.result import SeedResult
from faults.cli.campaign import progress

with progress(40) as on_result:
    for seed, status in enumerate(("passed", "failed", "refused", "error")):
        on_result(SeedResult(seed=seed, status=status))
        wait()
"""
_MUTANTS = """
from faults.cli.mutants import _progress
from faults.mutants.hunt import Hunt

with _progress(40) as advance:
    for seed in (3, None, 4, None):
        advance(Hunt(name="m", breaks="b", place="p", runs=1, seed=seed))
        wait()
"""
_SHRINK = """
from faults.cli.bar import bar

with bar("shrinking", 40, "still fail", threaded=False) as advance:
    assert threading.active_count() == 1
    for is_same in (True, False, True, False):
        advance(is_same)
        wait()
"""
_BEFORE = "import threading, time\nwait = lambda: time.sleep(0.12)\n"
_TITLES = {"campaign": _CAMPAIGN, "mutants": _MUTANTS, "shrinking": _SHRINK}
_FAILED = {"campaign": "failed", "mutants": "not caught", "shrinking": "still fail"}
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(script: str, width: int) -> list[str]:
    """The lines that ``script`` draws on a terminal of that width, as they come."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 25, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "CI")}
    with subprocess.Popen(
        [sys.executable, "-c", _BEFORE + script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=side,
        env={**environment, "TERM": "xterm"},
    ) as process:
        os.close(side)
        drawn = b""
        while chunk := _read(terminal):
            drawn += chunk
        assert process.wait(timeout=30) == 0, drawn.decode()
    os.close(terminal)
    lines = re.split(r"[\r\n]+", _SEQUENCE.sub("", drawn.decode()))
    return [line.rstrip() for line in lines if line.strip()]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # as Linux tells that nobody writes there any more
        return b""


@pytest.mark.parametrize(
    ("title", "width"), [("campaign", 120), ("mutants", 60), ("shrinking", 40)]
)
def test_a_terminal_shows_what_is_done_what_failed_the_rate_and_the_time_left(
    title: str, width: int
) -> None:
    """In one line of any width; rate and title go first where there is little room."""
    lines = on_terminal(_TITLES[title], width)
    assert all(len(line) <= width for line in lines)
    last = lines[-1]
    assert re.search(rf"\b4/40 +2 {_FAILED[title]}\b", last)
    assert re.search(r"\b0:00:\d\d left$", last)
    assert bool(re.search(r"[\d.]+ a minute", last)) == (width >= 60)
    assert last.startswith(title) == (width >= 120)
    assert ("━" in last) == (width >= 120)


def test_a_pipe_gets_no_bar_and_a_line_for_each_mutant() -> None:
    """A log is no place for a bar, and hours of mutants in CI have to show that they go on."""
    scripts = "\n".join(_TITLES.values()).replace("wait()", "")
    told = subprocess.run(
        [sys.executable, "-c", _BEFORE + scripts],
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
    )
    assert told.stdout == ""
    lines = [line for line in told.stderr.splitlines() if not line.startswith("  ")]
    assert [line.partition(":")[0] for line in lines] == ["m"] * 4
