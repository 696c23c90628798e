"""The hub: runs events in order of virtual time and switches to the tasks they wake.

A blocking call of guest code registers an event and parks its task; the hub runs the next
event; when it is the right one, the task goes on. There is one OS thread, and control changes
hands only where a task parks or at a checkpoint. Nothing here knows sockets, GPUs or vLLM.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import greenlet
from simpy.events import Event, Timeout

from sim.errors import DeadlockError, TaskKilled, TestbedError
from sim.kernel.crash import crash_of
from sim.kernel.environment import Environment
from sim.kernel.frames import raised_at, traceback_of
from sim.kernel.interrupt import deferred_interrupts
from sim.kernel.log import EventLog
from sim.kernel.plain_text import plain
from sim.kernel.polling import PollingLoop
from sim.kernel.process import Process, ProcessState
from sim.kernel.seed import Seed
from sim.kernel.task import Task, TaskFailure
from sim.kernel.watched_clock import ClockWatch
from sim.stopwatch import wall_clock

_PATIENCE_S = 1.0  # until Ctrl-C breaks into guest code instead of waiting for its next call

SwitchHook = Callable[[Process], None]
CrashHook = Callable[[Process], None]


class Wait:
    """One parking of a task: the first of event and time-out ends it, the other is ignored."""

    __slots__ = ("fired", "kernel", "loop", "over", "task")

    def __init__(self, kernel: Kernel, task: Task, loop: PollingLoop | None = None) -> None:
        self.kernel = kernel
        self.task = task
        self.loop = loop
        self.over = False
        self.fired = False

    def on_event(self, _event: Event) -> None:
        if not self.over:
            self.over = self.fired = True
            self.kernel._wake(self.task)

    def on_timeout(self, _event: Event) -> None:
        if not self.over:
            self.over = True
            self.kernel._wake(self.task)

    def on_look(self, _event: Event) -> None:
        """The time-out is that of a polling loop, which decides whether it ends the wait."""
        if not self.over:
            assert self.loop is not None
            self.loop.due(self)


def _is_over(event: Event) -> bool:
    """Whether it is only the time-out of waits that have ended."""
    callbacks = event.callbacks
    return bool(callbacks) and all(
        isinstance(wait := getattr(callback, "__self__", None), Wait) and wait.over
        for callback in callbacks
    )


class Kernel:
    """Virtual time for one run.

    ``perturb`` shuffles events of the same instant and lets other threads of the same process
    run at checkpoints, both drawn from the seed. ``skips_looks`` passes over what a polling loop
    does while it finds nothing (sim/kernel/polling.py).
    """

    def __init__(self, seed: Seed, *, perturb: bool = False, skips_looks: bool = True) -> None:
        self.seed = seed
        self.perturb = perturb
        self.skips_looks = skips_looks
        self.polling_loops: list[PollingLoop] = []
        self.has_polling_threads = False
        self._until_ns: int | None = None
        self.env = Environment(seed.stream("kernel/ties") if perturb else None)
        self.log = EventLog()
        self.tasks: list[Task] = []
        self.failures: list[TaskFailure] = []
        self.closing = False
        self.guest_wall_s = 0.0
        self._guest_since_s = 0.0
        self._preempt = seed.stream("kernel/preempt")
        self._hub = greenlet.getcurrent()
        self._active: Process | None = None
        self._switch_hooks: list[SwitchHook] = []
        self._crash_hooks: list[CrashHook] = []
        self._fatal: TestbedError | KeyboardInterrupt | None = None

    # ------------------------------------------------------------------ time

    @property
    def now_ns(self) -> int:
        return self.env._now  # type: ignore[no-any-return]

    @property
    def clock_watch(self) -> ClockWatch | None:
        """What has to know what is done with the time, just now."""
        loop = self.env.loop
        return None if loop is None else loop.watch

    def sleep(self, duration_ns: int, *, within: bool = False) -> None:
        """Park the current task for ``duration_ns``; 0 lets everything due now run first.

        ``within``: what the caller does from its return on, up to the next call of a facade, is
        seen by nobody outside the process.
        """
        task = self.require_task("sleep")
        loop = task.loop_that_sleeps()
        if loop is not None:
            loop.sleep(Wait(self, task, loop), duration_ns, alone=True)
        else:
            self.env.activity += 1
            if within:
                self.env.stays_within(task.process)
            self.env.timeout(duration_ns).callbacks.append(Wait(self, task).on_event)
        self._park(task, f"sleep of {duration_ns} ns", within=within)

    def wait(
        self,
        event: Event,
        timeout_ns: int | None = None,
        *,
        what: str | Callable[[], str] = "",
        within: bool = False,
    ) -> bool:
        """Park until ``event`` has happened; False when ``timeout_ns`` passed before it did.

        ``within`` as for ``sleep``.
        """
        if event.callbacks is None:  # processed already
            return True
        task = self.require_task("wait")
        loop = None if timeout_ns is None else task.loop_that_sleeps()
        waiting = Wait(self, task, loop)
        event.callbacks.append(waiting.on_event)
        if timeout_ns is not None and loop is not None:
            loop.sleep(waiting, timeout_ns, alone=False)
        elif timeout_ns is not None:
            self.env.timeout(timeout_ns).callbacks.append(waiting.on_timeout)
        self._park(task, what or "an event", within=within)
        return waiting.fired

    def will_poll(self) -> None:
        """The next timed wait or sleep of the running thread is between two looks of its own."""
        task = self.require_task("polling")
        if task.own_loop is None:
            task.own_loop = PollingLoop(self, lambda _count, _period_ns: None)
            self.has_polling_threads = True
        task.own_loop.will_sleep()

    def event(self) -> Event:
        return self.env.event()

    def call_later(self, delay_ns: int, function: Callable[..., Any], *args: Any) -> Timeout:
        """Run ``function`` on the hub after ``delay_ns``; it must not block."""

        def happens() -> None:
            self.env.activity += 1
            function(*args)

        return self.call_in_look(delay_ns, happens)

    def call_in_look(self, delay_ns: int, function: Callable[[], Any]) -> Timeout:
        """As ``call_later``, for what concerns nobody but tasks of the same polling loop."""
        timeout = self.env.timeout(delay_ns)
        timeout.callbacks.append(lambda _event: function())
        return timeout

    def checkpoint(self, *, within: bool = False) -> None:
        """A facade call: another thread of this process may run here, if the seed says so.

        ``within``: it changes nothing that is seen outside the process, or only by an event.
        """
        if not within:
            self.env.calls_out += 1
        if not self.perturb:
            return
        task = self.current()
        if task is None or self.closing or self.env.unobserved:
            return
        if self._preempt.random() < 0.125:
            self.env.timeout(0).callbacks.append(Wait(self, task).on_event)
            self._park(task, "its next turn")

    # ----------------------------------------------------------------- tasks

    def current(self) -> Task | None:
        """The running task, or None on the hub."""
        running = greenlet.getcurrent()
        return running if isinstance(running, Task) else None

    def require_task(self, verb: str) -> Task:
        task = self.current()
        if task is None:
            raise TestbedError(f"{verb} needs a task; the hub must never block")
        return task

    def spawn(
        self,
        process: Process,
        function: Callable[..., Any],
        *args: Any,
        name: str,
        guest: bool = True,
        needs_gil: bool = True,
        **kwargs: Any,
    ) -> Task:
        """Start a thread in ``process``; it gets its first turn after everything due now."""
        task = Task(
            lambda: self._body(task, lambda: function(*args, **kwargs)),
            self._hub,
            process=process,
            name=name,
            number=len(self.tasks),
            guest=guest,
            needs_gil=needs_gil,
        )
        self.tasks.append(task)
        process.tasks.append(task)
        self.call_later(0, self._wake, task)
        return task

    def kill(self, task: Task) -> None:
        """The task never runs again; its stack is unwound only when the run has ended."""
        task.killed = True

    def _body(self, task: Task, function: Callable[[], Any]) -> None:
        try:
            function()
        except TaskKilled:
            pass
        except (TestbedError, KeyboardInterrupt) as error:
            self.fail_run(error)
        except BaseException as error:
            self._task_failed(task, error)
        finally:
            task.finished = True

    def _task_failed(self, task: Task, error: BaseException) -> None:
        if self.closing:
            return
        if not task.guest:
            self.fail_run(crash_of(task.path, error))
            return
        self.failures.append(TaskFailure(self.now_ns, task.path, task.process.owner, error))
        message = plain(str(error))
        self.record(
            "task-failed",
            error=type(error).__name__,
            message=message,
            at=raised_at(error),
            traceback=traceback_of(error),
        )

    def fail_run(self, error: TestbedError | KeyboardInterrupt) -> None:
        """End the run at the next opportunity, even if guest code swallows the exception."""
        if self._fatal is None and not self.closing:
            self._fatal = error

    def own(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What ``function`` returns, which is no code under test: a rule, a probe, a fault.

        A guest's task may run it, and must not take its exceptions for its own: they end the run.
        """
        try:
            return function(*args, **kwargs)
        except TestbedError as error:
            self.fail_run(error)
            raise
        except Exception as error:
            task = self.current()
            if task is None or self.closing:
                raise
            crash = crash_of(f"the testbed, called by {task.path},", error)
            self.fail_run(crash)
            raise crash from error

    # ------------------------------------------------------------- processes

    def crash(self, process: Process) -> None:
        """None of the process's tasks ever runs again, whatever they were about to do."""
        process.state = ProcessState.DEAD
        process.deferred.clear()
        for task in process.tasks:
            self.kill(task)
        self.record("process-crashed", process=process.path)
        for hook in self._crash_hooks:
            hook(process)

    def on_crash(self, hook: CrashHook) -> None:
        """``hook(process)`` runs when a process has crashed: its operating system cleans up."""
        self._crash_hooks.append(hook)

    def pause(self, process: Process) -> None:
        """Stop the world: wake-ups are kept until ``resume``. Hardware goes on."""
        assert process.state is ProcessState.RUNNING, process.path
        process.state = ProcessState.PAUSED
        self.record("process-paused", process=process.path)

    def resume(self, process: Process) -> None:
        assert process.state is ProcessState.PAUSED, process.path
        process.state = ProcessState.RUNNING
        self.record("process-resumed", process=process.path)
        self._wake_deferred(process)

    @contextmanager
    def gil_held(self) -> Iterator[None]:
        """Blocking inside freezes every other task of the process, as a held GIL does."""
        task = self.require_task("holding the GIL")
        process = task.process
        if process.gil_owner is task:  # nested calls of one thread
            yield
            return
        process.gil_owner = task
        try:
            yield
        finally:
            process.gil_owner = None
            if not self.closing:
                self._wake_deferred(process)

    def _wake_deferred(self, process: Process) -> None:
        deferred, process.deferred = process.deferred, []
        for task in deferred:
            self.call_later(0, self._wake, task)

    # ------------------------------------------------------------- switching

    def on_switch(self, hook: SwitchHook) -> None:
        """``hook(process)`` runs before a task of another process than the last one runs."""
        self._switch_hooks.append(hook)

    def _park(self, task: Task, what: str | Callable[[], str], *, within: bool = False) -> None:
        """Let others run until an event wakes the task.

        ``within`` as for ``sleep``.
        """
        if self.closing:
            raise TaskKilled
        task.waiting_for, task.goes_on_within = what, within
        self._hub.switch()
        if self.closing:
            raise TaskKilled

    def _wake(self, task: Task) -> None:
        if task.killed or task.finished:
            return
        process = task.process
        if not process.may_run(task):
            process.deferred.append(task)
            return
        if process is not self._active:
            self._active = process
            for hook in self._switch_hooks:
                hook(process)
        env, loop = self.env, self.env.loop
        looks = loop is not None and loop in (task.polling_loop, task.own_loop)
        if not looks:
            env.activity += 1
        if not env.unobserved:
            self.log.switched(env._now, task.number)
        if not task.guest:
            task.switch()
            return
        calls_out = env.calls_out
        within = task.goes_on_within and not looks and task.polling_loop is None
        begin = self._guest_since_s = wall_clock()
        task.switch()
        self.guest_wall_s += wall_clock() - begin
        if within and env.calls_out == calls_out:
            env.stays_within(process)

    # ----------------------------------------------------------- the run

    def run(self, until: Event | None = None, until_ns: int | None = None) -> bool:
        """Run until ``until`` has happened (True) or ``until_ns`` is reached (False).

        Raises the testbed's own failures, and DeadlockError when nothing is left to happen
        before ``until`` did.
        """
        if self.current() is not None:
            raise TestbedError("the hub runs already; a task cannot run it again")
        env, self._until_ns = self.env, until_ns
        try:
            while until is None or until.callbacks is not None:
                next_ns = env.next_time_ns()
                if next_ns is None or (until_ns is not None and next_ns > until_ns):
                    return self._ran_dry(until, until_ns)
                env.step()
                if self._fatal is not None:
                    raise self._fatal
            return True
        finally:
            env.loop, env.unobserved = None, False

    def _ran_dry(self, until: Event | None, until_ns: int | None) -> bool:
        if until_ns is not None:
            self.env._now = max(self.now_ns, until_ns)
            return False
        if until is None:
            return False
        raise DeadlockError(
            "nothing is left to happen, but the run is not over:\n  "
            + "\n  ".join(self.describe_waiters())
        )

    def next_happening_ns(self, soon_ns: int = 0) -> float:
        """Until when nothing happens but empty looks; infinity if that is for ever. Of several
        times up to ``soon_ns`` it may be any."""
        next_ns = math.inf if self._until_ns is None else self._until_ns + 1
        queue, places = self.env._queue, [0]
        while places:
            place = places.pop()
            if place >= len(queue) or queue[place][0] >= next_ns:
                continue  # nor does anything below it in the heap come before
            if self._is_empty(queue[place][-1]):
                places += (2 * place + 1, 2 * place + 2)
                continue
            next_ns = queue[place][0]
            if next_ns <= soon_ns:
                break
        return next_ns

    def _is_empty(self, event: Any) -> bool:
        if event.unobserved or _is_over(event):
            return True
        return event.loop is not None and event.loop.is_empty_look(event)

    def describe_waiters(self, owner: str | None = None) -> list[str]:
        """Who waits for what, of all processes or of those of ``owner``."""
        waiting = (task for task in self.tasks if not (task.finished or task.killed))
        return [t.describe_wait() for t in waiting if owner in (None, t.process.owner)]

    def record(self, kind: str, **fields: Any) -> None:
        """Append to the event log in the name of the running task, or of the hardware."""
        self.env.activity += 1
        task = self.current()
        actor = task.path if task is not None else "hw"
        self.own(self.log.append, self.now_ns, actor, kind, fields)

    def close(self) -> None:
        """End of the run: freeze the log, then unwind every stack against dead facades."""
        self.log.close()
        self.closing = True
        for task in self.tasks:
            if not task.finished and not task.dead and task.gr_frame is not None:
                task.throw(TaskKilled)

    def _overdue(self) -> bool:
        """Whether the running guest task has not come back for a second of wall time."""
        task = self.current()
        return task is not None and task.guest and wall_clock() - self._guest_since_s > _PATIENCE_S

    @contextmanager
    def running(self) -> Iterator[Kernel]:
        """Garbage collection is off inside, and Ctrl-C waits for the next event, if there is one
        soon; ``close`` at the end, whatever happened."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            with deferred_interrupts(lambda: self.fail_run(KeyboardInterrupt()), self._overdue):
                yield self
        finally:
            self.close()
            if collecting:
                gc.enable()
