"""Side programs: child processes that run a script's own code on the same node."""

from __future__ import annotations

import builtins
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from facade_world import World, raised

from sim.errors import UnsupportedByFacade
from sim.guest.facades import processes
from sim.units import MS, SECOND

ECHO = """
import select, sys, time
heard.append(sys.argv[1:])
heard.append(sys.stdin.readline())
while not select.select([sys.stdin], [], [], 1.0)[0]:
    heard.append(time.monotonic())
heard.append(sys.stdin.readline())
"""


class Site:
    """A world whose guests may start side programs; ``heard`` is what those report."""

    def __init__(self, **facades: Any) -> None:
        self.world = World()
        self.heard: list[Any] = []
        self.programs = processes.SidePrograms(self.world.kernel, self._run)
        self.facades = processes.make(self.programs) | {"time": self.world.time} | facades
        self.subprocess = self.facades["subprocess"]

    def _run(self, program: processes.SideProgram) -> None:
        execute(Path(program.script), "__main__", self.facades, heard=self.heard)

    def popen(self, script: Path, *arguments: str) -> Any:
        return self.subprocess.Popen(
            [sys.executable, str(script), *arguments], stdin=self.subprocess.PIPE, text=True
        )


def execute(path: Path, name: str, facades: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The globals of a script that ran with ``facades``; the smallest possible guest loader."""

    def import_(target: str, *args: Any) -> ModuleType:
        return facades.get(target) or builtins.__import__(target, *args)

    scope = {"__name__": name, "__file__": str(path), **more}
    scope["__builtins__"] = {**vars(builtins), "__import__": import_}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "side.py"
        path.write_text(text)
        return path

    return write


def test_child_reads_its_input_and_sees_the_end_of_it(script: Callable[[str], Path]) -> None:
    """Arguments, a line through the pipe, select() with time-outs, and end of file."""
    site = Site()

    def main() -> list[Any]:
        child = site.popen(script(ECHO), "endpoint", "5")
        child.stdin.write("hello\n")
        child.stdin.flush()
        site.world.time.sleep(2.5)
        seen = [child.poll(), child.stdin.closed]
        child.stdin.close()
        return [*seen, child.wait(timeout=5), child.poll(), child.stdin.closed]

    assert site.world.run(main) == [None, False, 0, 0, True]
    start = processes.STARTUP_NS / SECOND
    assert site.heard == [["endpoint", "5"], "hello\n", start + 1, start + 2, ""]


def test_input_is_buffered_until_flushed(script: Callable[[str], Path]) -> None:
    """What was written but not flushed reaches nobody."""
    site = Site()

    def main() -> None:
        child = site.popen(script("import sys; heard.append(sys.stdin.readline())"))
        child.stdin.write("late")
        site.world.time.sleep(1)
        assert site.heard == []
        child.stdin.close()
        child.wait()

    site.world.run(main)
    assert site.heard == ["late"]


@pytest.mark.parametrize(
    ("body", "code"), [("pass", 0), ("raise SystemExit(3)", 3), ("raise SystemExit", 0)]
)
def test_return_code_is_the_script_s(script: Callable[[str], Path], body: str, code: int) -> None:
    """As of a real interpreter."""
    site = Site()
    assert site.world.run(lambda: site.popen(script(body)).wait()) == code


def test_exception_in_the_child_is_its_failure(script: Callable[[str], Path]) -> None:
    """The child exits with 1, and the failure is recorded in its name."""
    site = Site()
    codes: list[int] = []
    with site.world.kernel.running():
        site.world.start(lambda: codes.append(site.popen(script("1 // 0")).wait()))
        site.world.kernel.run()
    assert codes == [1]
    assert [f.task for f in site.world.kernel.failures] == ["p0/core+side-0/main"]


def test_signals_end_the_child(script: Callable[[str], Path]) -> None:
    """terminate() and kill() stop it for good; wait() with a time-out does not."""
    site = Site()

    def main() -> list[Any]:
        seen: list[Any] = []
        for method in ("terminate", "kill"):
            child = site.popen(script("import sys; sys.stdin.readline(); heard.append('alive')"))
            seen.append(raised(child.wait, timeout=1)[0])
            getattr(child, method)()
            seen.append(child.wait())
            seen.append(raised(child.stdin.write, "x\n")[0])
            seen.append(raised(child.stdin.flush)[0])
        return seen

    assert site.world.run(main) == [
        "TimeoutExpired", -15, "nothing", "BrokenPipeError",
        "TimeoutExpired", -9, "nothing", "BrokenPipeError",
    ]  # fmt: skip
    assert site.heard == []


def test_child_outlives_its_parent_and_sees_the_pipe_end(script: Callable[[str], Path]) -> None:
    """The operating system closes a dead parent's end of the pipe."""
    site = Site()
    kernel = site.world.kernel
    with kernel.running():
        site.world.start(lambda: (site.popen(script(ECHO)), site.world.time.sleep(100)))
        kernel.call_later(
            1 * MS,
            lambda: site.heard.append(
                [p.path for p in site.programs.children_of(site.world.process)]
            ),
        )
        kernel.call_later(5 * SECOND, kernel.crash, site.world.process)
        kernel.run(until_ns=10 * SECOND)
    assert site.heard == [["p0/core+side-0"], [], "", ""]
    assert [r.kind for r in kernel.log.records] == [
        "process-started", "process-crashed", "process-exited",
    ]  # fmt: skip


def test_crashed_child_is_seen_by_its_parent(script: Callable[[str], Path]) -> None:
    """A child that is killed from outside has the return code of SIGKILL."""
    site = Site()

    def main() -> int:
        child = site.popen(script("import sys; sys.stdin.readline()"))
        (process,) = site.programs.children_of(site.world.process)
        site.world.kernel.call_later(1 * SECOND, site.world.kernel.crash, process)
        return child.wait()

    assert site.world.run(main) == -9


def test_child_runs_while_its_parent_holds_the_gil(script: Callable[[str], Path]) -> None:
    """The reason to start one: it does not share its parent's GIL."""
    site = Site()

    def main() -> None:
        site.popen(script("import time\nfor _ in range(3): time.sleep(1); heard.append(1)"))
        with site.world.kernel.gil_held():
            site.world.kernel.sleep(10 * SECOND)
            assert site.heard == [1, 1, 1]

    site.world.run(main)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (["/bin/true", "x.py"], {"stdin": -1, "text": True}),
        ([sys.executable, "-c", "pass"], {"stdin": -1, "text": True}),
        ([sys.executable, "x.py"], {"stdin": -1}),
        ([sys.executable, "x.py"], {"stdin": -1, "text": True, "env": {}}),
    ],
)
def test_other_children_are_refused(args: list[str], options: dict[str, Any]) -> None:
    """Only a Python script with a text pipe to its input has a counterpart."""
    site = Site()
    with pytest.raises(UnsupportedByFacade, match="child process"):
        site.world.run(lambda: site.subprocess.Popen(args, **options))


def test_rest_of_the_modules_is_refused(script: Callable[[str], Path]) -> None:
    """Other ways to start processes or to wait for files are not simulated."""
    site = Site()
    uses: list[Callable[[], Any]] = [
        lambda: site.subprocess.run,
        lambda: site.facades["multiprocessing"].Process,
        lambda: site.facades["select"].epoll,
        lambda: site.facades["select"].select([sys.stdin], [], [], 0),
        lambda: site.popen(script("pass")).communicate,
    ]
    for use in uses:
        with pytest.raises(UnsupportedByFacade):
            site.world.run(use)
        site = Site()


def test_sys_is_real_outside_side_programs() -> None:
    """Engines see the interpreter's own sys."""
    facade = Site().facades["sys"]
    assert facade.argv is sys.argv
    assert facade.stdin is sys.stdin
    assert facade.modules is sys.modules


class _Zmq:
    """As much of zmq as the heartbeat script uses; sockets append to ``sent``."""

    DEALER, LINGER, SNDTIMEO = 5, 17, 28

    class ZMQError(Exception):
        pass

    class Again(ZMQError):
        pass

    def __init__(self, world: World) -> None:
        sent: list[Any] = []
        self.sent = sent

        class Socket:
            def __enter__(self) -> Socket:
                return self

            def __exit__(self, *_: object) -> None:
                sent.append("closed")

            def setsockopt(self, *_: object) -> None: ...

            def connect(self, endpoint: str) -> None:
                sent.append(endpoint)

            def send(self, payload: Any) -> None:
                sent.append((world.kernel.now_ns - processes.STARTUP_NS, payload))

        class Context(Socket):
            def socket(self, _kind: int) -> Socket:
                return Socket()

        self.Context = Context


def test_moriio_heartbeat_runs_in_its_own_process() -> None:
    """vLLM's heartbeat helper, both halves unmodified: it beats until it is shut down."""
    vllm = importlib.util.find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("vllm is not installed")
    path = Path(vllm.origin).parent / (
        "distributed/kv_transfer/kv_connector/v1/moriio/moriio_heartbeat.py"
    )
    site = Site(msgpack=SimpleNamespace(dumps=json.dumps))
    zmq = site.facades["zmq"] = _Zmq(site.world)  # type: ignore[assignment]

    def main() -> None:
        guest = execute(path, "moriio_heartbeat", site.facades)
        heartbeat = guest["MoRIIOHeartbeat"]("tcp://10.0.0.9:1", {"type": "P"}, 3.0)
        site.world.time.sleep(8)
        heartbeat.check_health()
        heartbeat.shutdown()
        with pytest.raises(RuntimeError, match="exited with code 0"):
            heartbeat.check_health()

    site.world.run(main)
    beats = [(n * 3 * SECOND, '{"type": "P"}') for n in range(3)]
    assert zmq.sent == ["tcp://10.0.0.9:1", *beats, "closed", "closed"]
