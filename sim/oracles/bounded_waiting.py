"""Bounded waiting: an engine step does not block longer than a transfer may take.

Time in which a process of the engine was stopped does not count, because nobody can wait less
than that. What a dead peer costs requests to other peers beyond the step is not judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sim.oracles.base import Oracle, OracleContext, RunFacts
from sim.oracles.words import seconds
from sim.probes import StepTimes
from sim.units import ns_to_seconds, seconds_to_ns


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a step may block.

    ``transfer_timeout_s`` is what the connector was configured with; with asynchronous loads
    a step may wait for one exchange of the control plane only, whose time-out is then given.
    """

    transfer_timeout_s: float = 30.0
    margin_s: float = 5.0


class BoundedWaiting(Oracle):
    """O10. Kinds: ``slow-step``, ``stuck-step``."""

    name = "bounded-waiting"
    summary = "No engine step blocks longer than the transfer time-out and a margin"
    Parameters = Limits

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        limits: Limits = self.parameters
        self._limit_ns = seconds_to_ns(limits.transfer_timeout_s + limits.margin_s)
        self._stops = StoppedTime()
        self._engines: dict[str, Any] = {}
        self._last_step_ns: dict[str, int] = {}
        self._got_work_ns: dict[str, int] = {}
        """By engine, when it last got a request while it had none."""
        context.kernel.log.subscribe(self._stops.on_record)
        context.kernel.log.subscribe(self._on_record)

    def engine_started(self, engine: Any) -> None:
        self._engines[engine.name] = engine
        self._last_step_ns[engine.name] = self.kernel.now_ns

    def engine_died(self, node: str, reason: str, *, injected: bool, traceback: Any = ()) -> None:
        self._judge_unfinished_step(node)

    def _on_record(self, record: Any) -> None:
        if record.kind == "leg-sent" and not self._has_work(record.fields["node"]):
            self._got_work_ns[record.fields["node"]] = record.time_ns

    def _has_work(self, node: str) -> bool:
        engine = self._engines.get(node)
        return bool(engine and engine.loop and engine.loop.scheduler.has_unfinished_requests())

    def steps_skipped(self, count: int, last: StepTimes) -> None:
        self._last_step_ns[last.node] = last.end_ns

    def step_done(self, step: StepTimes) -> None:
        self._last_step_ns[step.node] = step.end_ns
        if step.duration_ns <= self._limit_ns:
            return
        stopped_ns = self._stopped(step.node, step.start_ns, step.end_ns)
        blocked_ns = step.duration_ns - stopped_ns
        if blocked_ns > self._limit_ns:
            self._report(
                "slow-step",
                f"a step of {step.node} took {ns_to_seconds(blocked_ns):.3f} s, from "
                f"{seconds(step.start_ns)} to {seconds(step.end_ns)}",
                step.node,
                start_ns=step.start_ns,
                end_ns=step.end_ns,
                stopped_ns=stopped_ns,
            )

    def finish(self, run: RunFacts) -> None:
        for engine in run.engines:
            if engine.alive:
                self._judge_unfinished_step(engine.name)

    def _judge_unfinished_step(self, node: str) -> None:
        """An engine that has work and has not finished a step for long is inside of one."""
        now_ns = self.kernel.now_ns
        last_step_ns = max(self._last_step_ns.get(one, 0) for one in self._together(node))
        since_ns = max(last_step_ns, self._got_work_ns.get(node, 0))
        blocked_ns = now_ns - since_ns - self._stopped(node, since_ns, now_ns)
        if self._has_work(node) and blocked_ns > self._limit_ns:
            self._report(
                "stuck-step",
                f"{node} has unfinished requests and has finished no step since "
                f"{seconds(since_ns)}",
                node,
                start_ns=since_ns,
                end_ns=now_ns,
            )

    def _together(self, node: str) -> list[str]:
        """The engines that wait for each other in every step."""
        engine = self._engines.get(node)
        if engine is None or not engine.in_lockstep:
            return [node]
        return [rank.name for rank in engine.group.ranks]

    def _stopped(self, node: str, start_ns: int, end_ns: int) -> int:
        return self._stops.within(self._together(node), start_ns, end_ns)

    def _report(self, kind: str, detail: str, node: str, **evidence: Any) -> None:
        limit_s = ns_to_seconds(self._limit_ns)
        self.report(f"{detail}; the limit is {limit_s:g} s", node=node, kind=kind, **evidence)


class StoppedTime:
    """When processes of engines were stopped, from the records of the kernel."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._stops: dict[str, list[tuple[int, int]]] = {}

    def on_record(self, record: Any) -> None:
        """Observe the event log."""
        if record.kind == "process-paused":
            self._open[record.fields["process"]] = record.time_ns
        elif record.kind in ("process-resumed", "process-crashed"):
            process = record.fields["process"]
            start_ns = self._open.pop(process, None)
            if start_ns is not None:
                self._stops.setdefault(_node(process), []).append((start_ns, record.time_ns))

    def within(self, nodes: Sequence[str], start_ns: int, end_ns: int) -> int:
        """For how much of the time at least one process of ``nodes`` was stopped."""
        stops = [
            (since, end_ns) for process, since in self._open.items() if _node(process) in nodes
        ]
        stops += [stop for node in nodes for stop in self._stops.get(node, ())]
        total, reached = 0, start_ns
        for begin, end in sorted(stops):
            begin, end = max(begin, reached), min(end, end_ns)
            if begin < end:
                total += end - begin
                reached = end
        return total


def _node(process: str) -> str:
    return process.partition("/")[0]
