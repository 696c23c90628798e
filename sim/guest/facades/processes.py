"""``subprocess``, ``multiprocessing``, ``select`` and ``sys``, as far as side programs need them.

Guest code may start one kind of child: a Python script with a pipe to its standard input and
nothing else redirected. The child is a process of its own on the same node, so it shares no GIL
with its parent, and it runs the script's own code. It outlives its parent, as a real one does;
its standard input then ends. Pausing or crashing a node must include its side programs, which
whoever supplies the ``runner`` is told about. Everything else is refused.
"""

from __future__ import annotations

import select as real_select
import subprocess as real_subprocess
import sys as real_sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from sim.errors import TaskKilled, TestbedError
from sim.guest.facades.pipes import Pipe, PipeReader, PipeWriter
from sim.guest.facades.proxy import Facade, ModuleProxy, unsupported
from sim.guest.facades.waiting import WaitQueue, enter
from sim.kernel import Kernel, Process, ProcessState
from sim.kernel.log import Record
from sim.units import MS

STARTUP_NS = 150 * MS
"""From exec to the first line of the script: an interpreter that imports a few packages."""

_SIGKILL, _SIGTERM = 9, 15


class SideProgram:
    """A script running as a child process: what a runner has to execute.

    ``process`` is where it runs, ``script`` the file to execute as ``__main__``, ``argv`` its
    ``sys.argv``. The facades of ``sys`` and ``select`` know its arguments and standard input.
    """

    def __init__(
        self, kernel: Kernel, parent: Process, process: Process, script: str, argv: list[str]
    ) -> None:
        self.parent = parent
        self.process = process
        self.script = script
        self.argv = argv
        self.stdin = Pipe(kernel)
        self.stdin_reader = PipeReader(self.stdin)
        self.exiting = WaitQueue(kernel)
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._returncode is None and not self.process.alive:
            return -_SIGKILL
        return self._returncode

    def exited(self, returncode: int) -> None:
        self._returncode = returncode
        self.stdin.close_reader()
        self.exiting.wake_all()


Runner = Callable[[SideProgram], None]
"""Executes ``script`` as ``__main__`` in the current task, which is in ``process``; returns when
the script does. Called in the child, so it may block."""


class SidePrograms:
    """All side programs of one run."""

    def __init__(self, kernel: Kernel, runner: Runner) -> None:
        self.kernel = kernel
        self._runner = runner
        self._programs: list[SideProgram] = []
        kernel.log.subscribe(self._on_record)

    def start(self, args: list[str]) -> SideProgram:
        """Start ``[sys.executable, script, *arguments]`` next to the running process."""
        parent = self.kernel.require_task("start of a child process").process
        script = Path(args[1])
        name = f"{parent.name}+{script.stem}-{len(self._programs)}"
        process = Process(parent.node, name, parent.incarnation, parent.owner)
        program = SideProgram(self.kernel, parent, process, str(script), args[1:])
        self._programs.append(program)
        self.kernel.record("process-started", process=process.path, argv=args[2:])
        self.kernel.spawn(process, self._main, program, name="main")
        return program

    def running(self) -> SideProgram | None:
        """The side program that the current task belongs to."""
        task = self.kernel.current()
        for program in self._programs:
            if task is not None and task.process is program.process:
                return program
        return None

    def children_of(self, process: Process) -> list[Process]:
        """Processes that ``process`` has started and that still run."""
        children = (p.process for p in self._programs if p.parent is process)
        return [child for child in children if child.alive]

    def signal(self, program: SideProgram, number: int) -> None:
        if program.returncode is None:
            self.kernel.crash(program.process)
            program.exited(-number)

    def _main(self, program: SideProgram) -> None:
        self.kernel.sleep(STARTUP_NS)
        returncode = 1
        try:
            self._runner(program)
            returncode = 0
        except SystemExit as error:
            returncode = _exit_code(error)
        except (TaskKilled, TestbedError):
            raise
        finally:
            if not self.kernel.closing:
                self._end(program, returncode)

    def _end(self, program: SideProgram, returncode: int) -> None:
        process = program.process
        process.state = ProcessState.DEAD
        for task in process.tasks:
            self.kernel.kill(task)
        program.exited(returncode)
        self.kernel.record("process-exited", process=process.path, returncode=returncode)

    def _on_record(self, record: Record) -> None:
        """The operating system closes what a dead process held: pipes to its children."""
        if record.kind not in ("process-crashed", "process-exited"):
            return
        for program in self._programs:
            if not program.parent.alive:
                program.stdin.close_writer()
            if not program.process.alive and program._returncode is None:
                program.exited(-_SIGKILL)


class Popen:
    """A started side program, as its parent sees it."""

    _programs: SidePrograms

    def __init__(
        self,
        args: Any,
        *,
        stdin: int | None = None,
        text: bool | None = None,
        **options: Any,
    ) -> None:
        kernel = self._programs.kernel
        enter(kernel)
        self._check(kernel, args, stdin, text, options)
        self.args = list(args)
        self._program = self._programs.start(self.args)
        self.stdin = PipeWriter(self._program.stdin)
        self.stdout = self.stderr = None

    @staticmethod
    def _check(kernel: Kernel, args: Any, stdin: Any, text: Any, options: Any) -> None:
        is_script = (
            isinstance(args, list | tuple)
            and len(args) >= 2
            and args[0] == real_sys.executable
            and str(args[1]).endswith(".py")
        )
        if not is_script:
            raise unsupported(kernel, f"a child process other than a Python script: {args!r}")
        if stdin != real_subprocess.PIPE or not text or options:
            raise unsupported(
                kernel,
                "a child process with anything but stdin=PIPE, text=True "
                f"(got stdin={stdin}, text={text}, {', '.join(options) or 'no other options'})",
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsupported(self._programs.kernel, f"Popen.{name}")

    @property
    def returncode(self) -> int | None:
        return self._program.returncode

    def poll(self) -> int | None:
        self._programs.kernel.checkpoint()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        enter(self._programs.kernel)
        if self.returncode is None:
            path = self._program.process.path
            self._program.exiting.wait(timeout, lambda: f"the exit of {path}")
        if self.returncode is None:
            raise real_subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        self._programs.kernel.checkpoint()
        if number not in (_SIGKILL, _SIGTERM):
            raise unsupported(self._programs.kernel, f"signal {number} to a child process")
        self._programs.signal(self._program, number)

    def terminate(self) -> None:
        self.send_signal(_SIGTERM)

    def kill(self) -> None:
        self.send_signal(_SIGKILL)


def make(programs: SidePrograms) -> dict[str, ModuleType]:
    """The facades of the four modules, by name."""
    kernel = programs.kernel
    real = real_subprocess
    constants = {
        name: getattr(real, name)
        for name in ("PIPE", "DEVNULL", "STDOUT", "SubprocessError", "TimeoutExpired",
                     "CalledProcessError")
    }  # fmt: skip
    popen = type("Popen", (Popen,), {"_programs": programs})
    return {
        "subprocess": Facade(kernel, "subprocess", {**constants, "Popen": popen}),
        "multiprocessing": Facade(kernel, "multiprocessing", {}),
        "select": Facade(kernel, "select", {"select": _select(kernel), "error": real_select.error}),
        "sys": _Sys(programs),
    }


class _Sys(ModuleProxy):
    """The real ``sys``, but for the arguments and standard input of side programs."""

    def __init__(self, programs: SidePrograms) -> None:
        super().__init__(real_sys, {}, "sys")
        vars(self)["_programs"] = programs

    @property
    def argv(self) -> list[str]:
        program = vars(self)["_programs"].running()
        return real_sys.argv if program is None else program.argv

    @property
    def stdin(self) -> Any:
        program = vars(self)["_programs"].running()
        return real_sys.stdin if program is None else program.stdin_reader


def _select(kernel: Kernel) -> Callable[..., Any]:
    def select(
        rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        enter(kernel)
        if len(rlist) != 1 or not isinstance(rlist[0], PipeReader) or wlist or xlist:
            raise unsupported(kernel, f"select() on {rlist!r}, {wlist!r}, {xlist!r}")
        return (list(rlist) if rlist[0].wait_readable(timeout) else []), [], []

    return select


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1
