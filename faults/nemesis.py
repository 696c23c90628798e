"""The nemesis: waits for the moment of each fault, lets it strike, and heals it.

Everything happens in virtual time and by the seed, and is written to the event log in its own
name. When the safety phase is over it heals whatever lasts, latest first, and strikes no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faults.coverage import Coverage, FaultReport, Table
from faults.fault import CannotStrike, Fault, Heal, LastingFault
from faults.overlaps import Overlaps
from faults.scene import Scene, role_of
from sim.kernel.log import Record
from sim.lifecycle import Lifecycle, Phase
from sim.probes import Probe
from sim.request_ids import logical_id
from sim.run import TestBed
from sim.units import seconds_to_ns

_ACTOR = "nemesis"


class Nemesis(Probe):
    """Injects ``faults`` into the run of ``bed``."""

    def __init__(self, bed: TestBed, faults: Sequence[Fault]) -> None:
        self.bed = bed
        self.faults = faults
        self.overlaps = Overlaps()
        self.coverage = Coverage()
        self.lifecycle = Lifecycle(
            bed.world.memory_map.locate,
            bed.blocks,
            {engine.name: engine.node.name for engine in bed.engines},
            self._entered,
        )
        self._plans = [_Plan(self, number, fault) for number, fault in enumerate(faults)]
        bed.world.probes.add(self.lifecycle)
        bed.world.probes.add(self)
        bed.world.fabric.on_post(lambda pair, chain: self.lifecycle.posted(pair.device.key, chain))
        bed.kernel.log.subscribe(self.lifecycle.on_record)
        bed.kernel.log.subscribe(self._on_record)
        bed.on_safety_phase_end(self._heal_all)
        for plan in self._plans:
            if plan.fault.before_start:
                plan.strike(None)

    def workload_began(self) -> None:
        for plan in self._plans:
            delay_ns = seconds_to_ns(plan.fault.when.at_s)
            if plan.fault.before_start:
                continue
            if delay_ns:
                self.bed.kernel.call_later(delay_ns, plan.arm)
            else:  # before the first request arrives, in whatever order events run
                plan.arm()

    def report(self) -> list[FaultReport]:
        """What became of each fault, in their order."""
        return [plan.report() for plan in self._plans]

    def table(self) -> Table:
        """The coverage of this run."""
        return self.coverage.table(sorted({fault.kind() for fault in self.faults}))

    def hit(self, number: int, requests: Sequence[str], fields: dict[str, Any]) -> None:
        """Fault number ``number`` has reached ``requests``; called by its scene."""
        plan = self._plans[number]
        plan.hits += 1
        phases = {request: list(self.lifecycle.phases_of(request)) for request in requests}
        for request, of_request in phases.items():
            if self.lifecycle.was_sent_once(request):  # else an item may be of any of its attempts
                for phase in of_request:
                    self.coverage.hit(plan.fault.kind(), phase)
        self.record("fault-hit", number, requests=phases, **fields)

    def may_serve(self, name: str, request: str) -> bool:
        """Whether a request went to engine ``name``, or may yet: not if another one got it."""
        producer, consumer = self.lifecycle.engines_of(request)
        is_consumer = role_of(self.bed.engine(name)) == "kv_consumer"
        return name in (producer, consumer) or (consumer if is_consumer else producer) is None

    def record(self, event: str, number: int, **fields: Any) -> None:
        """Write to the event log in the nemesis's name, whosever turn it is."""
        kernel = self.bed.kernel
        fault = {"fault": number, "fault_kind": self.faults[number].kind()}
        kernel.log.append(kernel.now_ns, _ACTOR, event, {**fault, **fields})

    def _entered(self, request: str, phase: Phase | None) -> None:
        for plan in self._plans:
            plan.phase_changed(request, phase)

    def _on_record(self, record: Record) -> None:
        if record.actor != _ACTOR:
            for plan in self._plans:
                plan.recorded(record)

    def _heal_all(self) -> None:
        for plan in reversed(self._plans):
            plan.end()


class _Plan:
    """One fault and where it stands: waiting, armed, active, over."""

    def __init__(self, nemesis: Nemesis, number: int, fault: Fault) -> None:
        self.fault = fault
        self.strikes = 0
        self.hits = 0
        self.missed: list[str] = []
        self._nemesis = nemesis
        self._number = number
        earlier = sum(f.kind() == fault.kind() for f in nemesis.faults[:number])
        self._rng = nemesis.bed.seed.stream(f"fault/{fault.kind()}/{earlier}")
        self._armed = False
        self._following = False
        self._seen = 0
        self._heals: list[Heal] = []

    def report(self) -> FaultReport:
        return FaultReport(self.fault.kind(), self.strikes, self.hits, self.missed)

    # --------------------------------------------------------------- triggers

    def arm(self) -> None:
        """From now on the trigger counts."""
        when = self.fault.when
        self._armed = not self._nemesis.bed.safety_phase_over
        if self._armed and not (when.phase or when.event or when.during):
            self.strike(None)

    def phase_changed(self, request: str, phase: Phase | None) -> None:
        """A request has entered a phase, or left one (None)."""
        when = self.fault.when
        if not self._armed or not self._is_about_target(request):
            return
        if when.phase is not None and phase == when.phase:
            self._count(request)
        elif when.during is not None:
            self._follow(request)

    def recorded(self, record: Record) -> None:
        """Something was written to the event log."""
        when, target = self.fault.when, self.fault.target
        if not self._armed or when.event != record.kind:
            return
        fields = record.fields
        request = fields.get("request")
        logical = None if request is None else logical_id(str(request))
        if target.request is not None and logical not in (None, target.request):
            return
        if target.node is not None and fields.get("node", target.node) != target.node:
            return
        self._count(logical)

    def _is_about_target(self, request: str) -> bool:
        target = self.fault.target
        if target.request not in (None, request):
            return False
        ends = [name for name in (target.node, target.peer) if name is not None]
        return all(self._nemesis.may_serve(name, request) for name in ends)

    def _count(self, request: str | None) -> None:
        self._seen += 1
        if self._seen == self.fault.when.nth:
            self._soon(request)

    def _follow(self, request: str) -> None:
        """Strike when the phase begins for the first request, heal when the last has left it."""
        lifecycle, during = self._nemesis.lifecycle, self.fault.when.during
        wanted = self.fault.target.request
        requests = lifecycle.under_way() if wanted is None else [wanted]
        holds = any(
            during in lifecycle.phases_of(one) and self._is_about_target(one) for one in requests
        )
        if holds and not self._following:
            self._following = True
            self._soon(request)
        elif self._following and not holds:
            self._following = False
            self._nemesis.bed.kernel.call_later(0, self.heal)

    def _soon(self, request: str | None) -> None:
        if self.fault.at_once:
            self.strike(request)
        else:  # on the hub: whoever runs now must not lose its own process under its feet
            self._nemesis.bed.kernel.call_later(0, self._strike_if_armed, request)

    def _strike_if_armed(self, request: str | None) -> None:
        if self._armed:
            self.strike(request)

    # ------------------------------------------------------- strike and heal

    def strike(self, request: str | None) -> None:
        """Let the fault happen, now."""
        nemesis, fault = self._nemesis, self.fault
        scene = Scene(nemesis, self._number, fault, self._rng, request)
        nemesis.record("fault-struck", self._number, request=request)
        try:
            heal = fault.strike(scene)
        except CannotStrike as reason:
            self.missed.append(str(reason))
            nemesis.record("fault-missed", self._number, reason=str(reason))
            return
        self.strikes += 1
        if heal is None:
            return
        self._heals.append(heal)
        if isinstance(fault, LastingFault) and fault.for_s is not None:
            nemesis.bed.kernel.call_later(seconds_to_ns(fault.for_s), self._heal_one, heal)

    def heal(self) -> None:
        """Undo every strike that lasts, latest first."""
        for heal in reversed(self._heals[:]):
            self._heal_one(heal)

    def _heal_one(self, heal: Heal) -> None:
        if heal in self._heals:
            self._heals.remove(heal)
            heal()
            self._nemesis.record("fault-healed", self._number)

    def end(self) -> None:
        """Heal, and never strike again."""
        self._armed = False
        self.heal()
