"""Where the library ends its process: a failing bind, an assertion, memory that is gone."""

from __future__ import annotations

from typing import NoReturn

from sim.kernel import Kernel, Process


def exit_process(kernel: Kernel, process: Process, reason: str) -> NoReturn:
    """The current task's process is gone; the task parks for good."""
    kernel.record("process-exit", process=process.path, reason=reason)
    process.exit_reason = reason
    kernel.crash(process)
    kernel.wait(kernel.event(), what="nothing: the process has exited")
    raise AssertionError("a task of a dead process ran")
