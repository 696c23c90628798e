"""The router: takes requests from clients, sends their legs to engines, collects the answers.

In a P/D topology each request first goes to a producer with ``max_tokens=1``; the KV transfer
parameters that come back go to a consumer together with the whole prompt. With ``in_pairs`` both
legs are sent at once. Without producers the consumers are colocated engines and get one leg.
Everything runs on the hub or in the caller's turn and never blocks. The router models no HTTP and
knows no engine's internals: it sees outputs, allocations (through a probe) and deaths.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simpy.events import Event

from sim.errors import TestbedError
from sim.request_ids import LegKind, leg_id, leg_of
from sim.router.messages import KVTransferParams, decode_params, engine_request, prefill_params
from sim.router.ongoing import FirstLeg, HandOff, Leg, Ongoing, Result, Route, token_digest
from sim.router.options import Phase, Retry, RouterOptions
from sim.router.pairing import Pairing
from sim.router.round_robin import RoundRobin
from sim.router.surroundings import EngineWatch, FrontEnd, Surroundings
from sim.units import US, ns_to_seconds, seconds_to_ns
from sim.verdict import Corrupt, Delay, Deliver, Drop, VerdictChain
from sim.workload import RequestSpec, prompt_token_ids

_ACTOR = "router"
_SUCCESS = ("length", "stop")


class Router:
    """Serves ``requests`` once started; ``done`` happens when all submitted ones have ended.

    With ``producers`` empty every consumer is a colocated engine. ``recomputed`` counts prefill
    legs that ended well but returned no transfer parameters, so that the consumer had to prefill.
    """

    def __init__(
        self,
        world: Surroundings,
        producers: Sequence[FrontEnd],
        consumers: Sequence[FrontEnd],
        requests: Sequence[RequestSpec],
        options: RouterOptions,
        *,
        in_pairs: bool = False,
    ) -> None:
        options.require_possible(in_pairs=in_pairs)
        self.kernel = world.kernel
        self.options = options
        self.results: dict[str, Result] = {}
        self.recomputed = 0
        self.done: Event = self.kernel.event()
        self.verdicts = VerdictChain(world.kernel.own)
        """Rules about ``FirstLeg`` and ``HandOff`` (sim.router.ongoing): what clients want, and
        what becomes of what P returned."""
        self.stop_tokens: dict[str, tuple[int, ...]] = {}
        """Of each request that has any."""
        self._probes = world.probes
        self._vocab_size = world.vocab_size
        self.in_pairs = in_pairs
        self._requests = list(requests)
        self._serving: LegKind = "d" if producers else "c"
        self._producers = RoundRobin(producers)
        self._consumers = RoundRobin(consumers)
        self._due: dict[str, None] = {}
        """The requests that have been submitted and have not arrived."""
        self._ongoing: dict[str, Ongoing] = {}
        self._legs: dict[str, Leg] = {}
        self._unfinished = 0
        self._start_ns = 0
        world.probes.add(EngineWatch(self.blocks_held, self.engine_died))
        for engine in (*producers, *consumers):
            engine.on_output = self.on_output

    # --------------------------------------------------------------- clients

    def start(self) -> None:
        """Let the workload begin now: arrival and abort times count from here."""
        self._start_ns = self.kernel.now_ns
        for spec in self._requests:
            self.submit(spec)

    def submit(self, spec: RequestSpec, route: Route | None = None) -> None:
        """One more request, which arrives ``spec.arrival_ns`` from now; on a ``route`` of its own
        instead of in turn."""
        if self.done.triggered:
            self.done = self.kernel.event()
        self._unfinished += 1
        self._due[spec.request_id] = None
        self.kernel.call_later(spec.arrival_ns, self._arrive, spec, route)

    def stop_sending(self) -> list[str]:
        """Requests that have not arrived by now never do; their ids."""
        never_sent, self._due = list(self._due), {}
        self._unfinished -= len(never_sent)
        if never_sent and self._unfinished == 0:
            self.done.succeed()
        return never_sent

    def abort(self, request_id: str) -> None:
        """The client goes away; nothing happens when the request is not under way."""
        request = self._ongoing.get(request_id)
        if request is not None:
            serving = next((leg for leg in request.legs if leg.kind != "p"), None)
            self._end(request, "abort", serving)

    def retry(self, retry: Retry) -> None:
        """Send a request again, ``retry.after_s`` from now, if it is under way now and then."""
        request = self._ongoing.get(retry.request)
        if request is not None:
            request.scheduled += 1
            self.kernel.call_later(seconds_to_ns(retry.after_s), self._retry, request, retry)

    def ask_for(self, request_id: str, samples: int, gap_s: float = 0.0) -> None:
        """The client wants ``samples`` of a request that is at no consumer yet: as many decode legs
        get the same parameters, like children in vLLM's front end, ``gap_s`` after one another."""
        request = self._ongoing[request_id]
        request.samples = request.missing = samples
        request.sample_gap_ns = seconds_to_ns(gap_s)

    def hand_off_early(self, request_id: str) -> None:
        """Tell a consumer of an unfinished prefill; what its producer returns is not passed on."""
        request = self._ongoing[request_id]
        producer, consumer = request.producer, self._consumer_for(request)
        assert producer is not None, f"{request_id} has no prefill leg"
        if consumer is None:
            return
        request.is_told_early = True
        pair = Pairing(request.transfer_id(request.attempts["p"] - 1), producer, consumer)
        self._hand_off(request, HandOff(request.id, pair.decode_params(), producer))

    def is_at_a_consumer(self, request_id: str) -> bool:
        """Whether a consumer has got the request, whatever has become of it there."""
        return bool(self._ongoing[request_id].attempts.get(self._serving))

    def phase_of(self, request_id: str) -> Phase | None:
        """Where a request is; None before its arrival and after its end."""
        request = self._ongoing.get(request_id)
        return None if request is None else request.phase

    def _arrive(self, spec: RequestSpec, route: Route | None) -> None:
        if spec.request_id not in self._due:
            return
        del self._due[spec.request_id]
        request = Ongoing(spec, self.kernel.now_ns, route)
        self._ongoing[request.id] = request
        self._record(
            "request-arrived",
            request=request.id,
            prompt_tokens=spec.prompt_tokens,
            max_tokens=spec.max_tokens,
        )
        self._probes.request_started(request.id)
        for abort in self.options.aborts:
            if abort.request == request.id and abort.at_s is not None:
                due_ns = self._start_ns + seconds_to_ns(abort.at_s)
                delay_ns = max(0, due_ns - self.kernel.now_ns)
                self.kernel.call_later(delay_ns, self.abort, request.id)
        if self._serving == "d":
            self._begin(request)
        else:
            self._hand_off(request, None)

    # ------------------------------------------------------------------ legs

    def _begin(self, request: Ongoing) -> None:
        """A new transfer."""
        producer = self._producer_for(request)
        consumer = self._consumer_for(request) if self.in_pairs else None
        if producer is None or (self.in_pairs and consumer is None):
            self._attempt_failed(request, "engine-died", None)
            return
        request.producer = producer
        transfer_id = request.transfer_id(request.attempts.get("p", 0))
        if consumer is None:
            self._send(request, "p", producer, prefill_params(transfer_id))
        else:
            self._send_both(request, Pairing(transfer_id, producer, consumer))

    def _producer_for(self, request: Ongoing) -> FrontEnd | None:
        return self._producers.pick() if request.route is None else request.route.producer

    def _consumer_for(self, request: Ongoing) -> FrontEnd | None:
        return self._consumers.pick() if request.route is None else request.route.consumer

    def _send_both(self, request: Ongoing, pair: Pairing) -> None:
        self._send(request, "p", pair.producer, pair.prefill_params(), pair)
        if request.ended:
            return
        hand_off = HandOff(request.id, pair.decode_params(), pair.producer, pair)
        judged = self._judge(request, hand_off)
        if judged is None:
            self._lose(request, hand_off)
            return
        hand_off, held_s = judged
        if held_s:
            self._hand_off_after(request, hand_off, seconds_to_ns(held_s))
        else:
            self._hand_off(request, hand_off)

    def _send_decode(self, request: Ongoing, engine: FrontEnd | None) -> None:
        if engine is None:
            self._attempt_failed(request, "engine-died", None)
            return
        request.consumer = engine
        for index in range(request.samples):
            if gap_ns := index * request.sample_gap_ns:
                self.kernel.call_later(gap_ns, self._send_sample, request, engine, index)
            else:
                self._send_sample(request, engine, index)

    def _send_sample(self, request: Ongoing, engine: FrontEnd, index: int) -> None:
        if request.ended:
            return
        if not engine.alive:
            self._attempt_failed(request, "engine-died", None)
            return
        hand_off, sample = request.hand_off, index if request.samples > 1 else None
        pairing = None if hand_off is None else hand_off.pairing
        self._send(request, self._serving, engine, _params_of(hand_off), pairing, sample)

    def _send(
        self,
        request: Ongoing,
        kind: LegKind,
        engine: FrontEnd,
        params: KVTransferParams | None,
        pairing: Pairing | None = None,
        sample: int | None = None,
    ) -> None:
        attempt = request.attempts.get(kind, 0)
        request.attempts[kind] = attempt + 1
        name = leg_id(request.id, kind, attempt)
        leg = Leg(name, kind, engine, request, pairing, sample=sample)
        request.legs.append(leg)
        self._legs[leg.id] = leg
        self._record(
            "leg-sent",
            request=request.id,
            leg=leg.id,
            node=engine.name,
            transfer=None if params is None else params.get("transfer_id"),
        )
        if attempt == 0 and kind != "d":
            self._ask_client(request, engine)
        engine.add_request(
            engine_request(
                leg.request_id,
                prompt_token_ids(request.spec, vocab_size=self._vocab_size).tolist(),
                max_tokens=1 if kind == "p" else request.spec.max_tokens,
                arrival_s=ns_to_seconds(self.kernel.now_ns),
                params=params,
                stop_tokens=request.stop_tokens,
            )
        )
        self._enter(request, "queued_at_d" if kind == "d" else "queued_at_p")

    def _ask_client(self, request: Ongoing, engine: FrontEnd) -> None:
        """What the client wants besides its prompt, as rules say."""
        match self.verdicts.ask(FirstLeg(request.id, engine)):
            case Deliver():
                return
            case Corrupt(change=change):
                request.stop_tokens = self.stop_tokens[request.id] = change(())
            case verdict:
                raise TestbedError(f"a first leg cannot honour the verdict {verdict!r}")

    def on_output(self, engine: FrontEnd, output: Any) -> None:
        """An engine's output (EngineCoreOutput) arrived; late ones of ended legs are ignored."""
        leg = self._legs.get(leg_of(output.request_id))
        if leg is None:
            return
        leg.tokens.extend(output.new_token_ids)
        if output.prefill_stats is not None:
            leg.remote_cached_tokens = output.prefill_stats.num_external_cached_tokens
        if leg.kind != "p" and leg.tokens and leg.request.first_token_ns is None:
            leg.request.first_token_ns = self.kernel.now_ns
            self._enter(leg.request, "decode")
        if output.finish_reason is not None and not leg.request.ended:
            self._leg_ended(leg, str(output.finish_reason), output.kv_transfer_params)

    def blocks_held(self, request_id: str) -> None:
        """An engine's scheduler gave blocks to a leg."""
        leg = self._legs.get(request_id)
        if leg is None or leg.has_blocks:
            return
        leg.has_blocks = True
        self._enter(leg.request, "allocated" if leg.kind == "d" else "prefill")

    def engine_died(self, name: str) -> None:
        """An engine is gone: all its legs end."""
        for leg in list(self._legs.values()):  # one may have ended together with another sample
            if leg.engine.name == name and leg.id in self._legs:
                self._leg_ended(leg, "engine-died", None)

    def _leg_ended(self, leg: Leg, outcome: str, params: KVTransferParams | None) -> None:
        request = leg.request
        del self._legs[leg.id]
        request.legs.remove(leg)
        self._record(
            "leg-finished",
            request=request.id,
            leg=leg.id,
            node=leg.engine.name,
            outcome=outcome,
            tokens=len(leg.tokens),
        )
        if outcome not in _SUCCESS:
            self._fail_pair(leg, outcome)
            if leg.kind != "p" and request.is_answered_by_failure:
                self._end(request, outcome, leg)
            else:
                self._attempt_failed(request, outcome, leg)
        elif leg.kind == "p" and (leg.pairing is not None or request.is_told_early):
            self._enter(request, "handoff")
        elif leg.kind == "p":
            self._prefill_ended(request, HandOff(request.id, params, leg.engine))
        else:
            self._sample_ended(request, outcome, leg)

    def _sample_ended(self, request: Ongoing, outcome: str, leg: Leg) -> None:
        """The client has its answer with the last one."""
        request.missing -= 1
        if request.missing == 0:
            self._end(request, outcome, leg)
            return
        self._probes.sample_ended(request.id, outcome, list(leg.tokens))

    # -------------------------------------------------------------- hand-off

    def _prefill_ended(self, request: Ongoing, hand_off: HandOff) -> None:
        if hand_off.params is None:
            self.recomputed += 1
        judged = self._judge(request, hand_off)
        if judged is not None:
            hand_off, held_s = judged
            latency_ns = self.options.hand_off_latency_us * US
            self._hand_off_after(request, hand_off, latency_ns + seconds_to_ns(held_s))
        self._enter(request, "handoff")
        if judged is None and not request.ended:
            self._lose(request, hand_off)

    def _judge(self, request: Ongoing, hand_off: HandOff) -> tuple[HandOff, float] | None:
        """What is handed off after the rules had their say, and after how many seconds; None
        when it is lost."""
        held_s = sum(hold.seconds for hold in self.options.holds if hold.request == request.id)
        match self.verdicts.ask(hand_off):
            case Deliver():
                pass
            case Delay(by_ns=by_ns):
                held_s += ns_to_seconds(by_ns)
            case Corrupt(change=change):
                hand_off = replace(hand_off, params=change(copy.deepcopy(hand_off.params)))
            case Drop():
                return None
            case verdict:
                raise TestbedError(f"a hand-off cannot honour the verdict {verdict!r}")
        if held_s:
            self._record("hand-off-held", request=request.id, seconds=held_s)
        return hand_off, held_s

    def _lose(self, request: Ongoing, hand_off: HandOff) -> None:
        """As a router that dies now: its clients see an error, and no consumer hears anything."""
        self._record("hand-off-lost", request=request.id)
        for leg in [leg for leg in request.legs if leg.pairing and leg.pairing is hand_off.pairing]:
            request.legs.remove(leg)
            self._give_up(leg)
        self._attempt_failed(request, "hand-off-lost", None)

    def _hand_off_after(self, request: Ongoing, hand_off: HandOff, delay_ns: int) -> None:
        request.scheduled += 1
        self.kernel.call_later(delay_ns, self._hand_off_due, request, hand_off)

    def _hand_off_due(self, request: Ongoing, hand_off: HandOff) -> None:
        request.scheduled -= 1
        if request.ended:
            return
        failure = hand_off.pairing and request.failed.get(hand_off.pairing)
        if failure:
            self._attempt_failed(request, failure, None)
        else:
            self._hand_off(request, hand_off)

    def _hand_off(self, request: Ongoing, hand_off: HandOff | None) -> None:
        request.hand_off = hand_off
        self._schedule_retries(request)
        if hand_off is None or hand_off.pairing is None:
            self._send_decode(request, self._consumer_for(request))
        else:
            consumer = hand_off.pairing.consumer
            self._send_decode(request, consumer if consumer.alive else None)

    def _schedule_retries(self, request: Ongoing) -> None:
        if request.retries_scheduled:
            return
        request.retries_scheduled = True
        for retry in self.options.retries:
            if retry.request == request.id:
                self.retry(retry)

    def _retry(self, request: Ongoing, retry: Retry) -> None:
        request.scheduled -= 1
        if request.ended:
            return
        self._record("request-retried", request=request.id)
        if not retry.same_transfer_id and self._serving == "d":
            self._begin(request)
            return
        engine = request.consumer
        if self.in_pairs:
            self._send_decode(request, engine if engine and engine.alive else None)
            return
        if retry.consumer == "other" or engine is None or not engine.alive:
            engine = self._consumers.pick(avoid=engine)
        self._send_decode(request, engine)

    # ------------------------------------------------------------- the end

    def _fail_pair(self, leg: Leg, outcome: str) -> None:
        """Nothing will come of the counterpart of a leg that failed: without a prefill a decode
        leg would wait for ever, and nobody needs a prefill whose decode legs are gone."""
        request, pair = leg.request, leg.pairing
        if pair is None:
            return
        others = [other for other in request.legs if other.pairing is pair]
        if leg.kind == "d" and any(other.kind == "d" for other in others):
            return
        request.failed[pair] = outcome
        for other in others:
            request.legs.remove(other)
            self._give_up(other)

    def _give_up(self, leg: Leg) -> None:
        del self._legs[leg.id]
        if leg.engine.alive:
            leg.engine.abort([leg.request_id])

    def _attempt_failed(self, request: Ongoing, outcome: str, leg: Leg | None) -> None:
        """The request fails with its last attempt, when no other is under way or to come."""
        if not request.legs and not request.scheduled:
            self._end(request, outcome, leg)

    def _end(self, request: Ongoing, outcome: str, leg: Leg | None) -> None:
        """Tell the client what ``leg`` gave, and abort whatever is still under way."""
        request.ended = True
        del self._ongoing[request.id]
        for other in request.legs:
            if outcome in _SUCCESS and leg is not None and leg.is_counterpart_of(other):
                del self._legs[other.id]  # its work is done, its last word is on the way
            else:
                self._give_up(other)
        result = request.result(outcome, leg, self.kernel.now_ns)
        self.results[request.id] = result
        self._record(
            "request-ended",
            request=request.id,
            outcome=outcome,
            tokens=len(result.tokens),
            digest=token_digest(result.tokens),
        )
        self._probes.request_ended(request.id, outcome, list(result.tokens))
        self._unfinished -= 1
        if self._unfinished == 0:
            self.done.succeed()

    # --------------------------------------------------------------- phases

    def _enter(self, request: Ongoing, phase: Phase) -> None:
        request.phase = phase
        if any(a.request == request.id and a.on_phase == phase for a in self.options.aborts):
            self.abort(request.id)

    def _record(self, kind: str, **fields: Any) -> None:
        """In the router's name, whosever turn it is."""
        self.kernel.log.append(self.kernel.now_ns, _ACTOR, kind, fields)


def _params_of(hand_off: HandOff | None) -> KVTransferParams | None:
    """What a decode leg is told; each gets its own, because connectors change it."""
    if hand_off is None or hand_off.params is None:
        return None
    return decode_params(hand_off.params, producer_tp_size=hand_off.producer.options.tp_size)
