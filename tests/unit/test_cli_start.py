"""What happens before a run: how soon bad input is refused, and how Ctrl-C ends it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from faults.cli import watchdog
from sim.kernel import Kernel, Node, Process, Seed

COMMAND = [sys.executable, "-m", "faults.cli"]


REFUSED = [
    ["run", "nothing"],
    ["run", "--set", "sed=1"],
    ["run", "--set", "producers=1000000000000"],
    ["run", "--set", "tp_size=2048", "--set", "executor=multi-process"],
    ["run", "--trace", "gone.jsonl"],
    ["run", "--hold", "req-99=5"],
    ["run", "--connector", "no.colon"],
    ["run", "--connector", "no.such:Thing"],
    ["run", "--overlay", "nowhere"],
    ["run", "--fault", "crash:node=p7"],
    ["run", "--fault", "stop-token:request=req-99"],
    ["run", "--set", "tp_size=3", "--set", "executor=multi-process"],
    ["campaign", "--seeds", "2", "--connector", "no.such:Thing"],
    ["campaign", "--seeds", "2", "--set", "overlay=nowhere"],
    ["campaign", "--seeds", "2", "--set", "overlay=docs"],
    ["compare", "--seeds", "2", "--connector", "moriio", "--overlay", "docs"],
    ["campaign", "--seeds", "2", "--set", "tp_size=3", "--set", "executor=multi-process"],
    ["campaign", "--seeds", "2", "--set", "faults=[{kind: crash}]"],
    ["campaign", "--seeds", "2", "--set", "seed=3"],
    ["campaign", "--seeds", "2", "--junit", "nowhere/seeds.xml"],
    ["campaign", "--seeds", "2", "--junit", "docs"],
    ["run", "--requests", "99999999999"],
    ["run", "--out", "README.md/runs"],
    ["replay", "nowhere"],
    ["bench", "nonsense"],
]


def test_bad_input_is_refused_before_vllm_is_loaded() -> None:
    """Nobody waits for seconds to hear of a typing error."""
    source = (
        "import json, sys; from faults.cli.dispatch import run; "
        "codes = [run(arguments) for arguments in json.load(sys.stdin)]; "
        "print(json.dumps([codes, 'vllm' in sys.modules, 'torch' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        input=json.dumps(REFUSED),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    codes, *loaded = json.loads(done.stdout)
    assert set(codes) <= {2, 125}
    assert loaded == [False, False]
    assert done.stderr.count("faultlab: error: ") == len(REFUSED)


def heed_interrupts() -> None:
    """A shell lets what it runs in the background ignore SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def test_a_closed_stdout_is_no_error() -> None:
    """As by ``>&-``: the exit code is the answer, and no file of a run gets the number 1."""
    source = "import os; os.close(1); from faults.cli.app import main; code = main(); " \
        "print(os.readlink('/proc/self/fd/1'), code, file=__import__('sys').stderr)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", source, "connectors"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "/dev/null 0\n")


def test_ctrl_c_while_vllm_is_loaded_is_no_traceback() -> None:
    """130, as shells number it, and one line."""
    process = started("run")
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "faultlab: interrupted\n")


def test_a_terminal_is_told_what_it_waits_for() -> None:
    """After a second; a pipe is not."""
    terminal, side = pty.openpty()
    with subprocess.Popen([*COMMAND, "run"], stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        first = os.read(terminal, 1000).decode()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    os.close(terminal)
    assert first.startswith("faultlab: loading vLLM ...")


def test_a_guest_that_never_yields_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for as long as virtual time stands still, with the guest's own place."""
    monkeypatch.setattr(watchdog, "_EVERY_S", 0.1)
    kernel = Kernel(Seed(1))
    namespace = {"__name__": "guest.p0_core_0.shop.code", "clock": time.perf_counter}
    source = "def loop():\n    end = clock() + 0.5\n    while clock() < end:\n        pass"
    exec(compile(source, "shop/code.py", "exec"), namespace)
    process = Process(Node("p0", "10.0.0.1"), "core")
    with watchdog.watchdog(kernel), kernel.running():
        kernel.spawn(process, namespace["loop"], name="t")
        kernel.run()
    hint = capfd.readouterr().err
    assert hint.count("virtual time has stood at 0.000000 s for 0.1 s or more") == 1
    assert re.search(r"p0/core/t is at shop.code:[34] in loop \(Ctrl-C ends the run\)", hint)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_run_that_goes_on_gets_no_hint(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes."""
    monkeypatch.setattr(watchdog, "_EVERY_S", 0.05)
    kernel = Kernel(Seed(1))

    def work() -> None:
        end_s = time.perf_counter() + 0.3
        while time.perf_counter() < end_s:
            kernel.sleep(1)

    with watchdog.watchdog(kernel), kernel.running():
        kernel.spawn(Process(Node("p0", "10.0.0.1"), "core"), work, name="t")
        kernel.run()
    assert capfd.readouterr().err == ""
