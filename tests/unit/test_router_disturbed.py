"""Holds, retries and clients that go away."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_engines import STEP_NS, FakeEngine, FakeWorld, Seen, fake_world

from sim.router.options import Abort, Hold, Retry, RouterOptions
from sim.router.router import Router
from sim.units import SECOND, US
from sim.workload import RequestSpec, Segment

RETURNED = {"remote_engine_id": "p0", "remote_block_ids": [[1]], "transfer_id": "tx-a-0"}


class Bench:
    """One producer, two consumers and a request ``a`` of three tokens."""

    def __init__(self, options: RouterOptions, **engine: bool) -> None:
        self.world: FakeWorld = fake_world()
        self.kernel = self.world.kernel
        self.p = FakeEngine(self.world, "p0", returned_params=dict(RETURNED))
        self.d = [FakeEngine(self.world, f"d{i}", **engine) for i in range(2)]
        self.router = Router(
            self.world, [self.p], self.d, [RequestSpec("a", 0, (Segment(5, 20),), 3)], options
        )
        self.router.start()

    def run(self) -> str:
        self.kernel.run(until=self.router.done)
        return self.router.results["a"].outcome

    def sent(self) -> list[str]:
        records = self.kernel.log.records
        return [record.fields["leg"] for record in records if record.kind == "leg-sent"]


def test_a_held_request_reaches_its_consumer_that_much_later() -> None:
    """The hold comes on top of the router's latency, and is in the log."""
    bench = Bench(RouterOptions(holds=(Hold("a", 65.0),)))
    assert bench.run() == "length"
    sent = [r for r in bench.kernel.log.records if r.kind == "leg-sent"]
    assert sent[1].time_ns - sent[0].time_ns == 2 * STEP_NS + 200 * US + 65 * SECOND
    held = [r.fields for r in bench.kernel.log.records if r.kind == "hand-off-held"]
    assert held == [{"request": "a", "seconds": 65.0}]


def test_only_the_named_request_is_held() -> None:
    """A hold of another one leaves this one alone."""
    bench = Bench(RouterOptions(holds=(Hold("b", 65.0),)))
    bench.run()
    assert bench.kernel.now_ns < SECOND


@pytest.mark.parametrize(("consumer", "index"), [("same", 0), ("other", 1)])
def test_a_retry_repeats_the_decode_leg_with_the_same_transfer(consumer: str, index: int) -> None:
    """On the consumer that has it already, or on another."""
    bench = Bench(RouterOptions(retries=(Retry("a", 0.05, consumer=consumer),)), silent=True)
    bench.kernel.run(until_ns=SECOND)
    assert bench.sent() == ["a-p0", "a-d0", "a-d1"]
    assert bench.d[index].requests[-1].request_id == "a-d1"
    assert bench.d[index].params_of() == bench.d[0].params_of(0)


def test_a_retry_with_a_new_transfer_starts_with_a_new_prefill() -> None:
    """The producer then sees two requests and two transfer ids."""
    bench = Bench(RouterOptions(retries=(Retry("a", 0.05, same_transfer_id=False),)), silent=True)
    bench.kernel.run(until_ns=SECOND)
    assert bench.sent() == ["a-p0", "a-d0", "a-p1", "a-d1"]
    assert [bench.p.params_of(i)["transfer_id"] for i in (0, 1)] == ["tx-a-0", "tx-a-1"]


def test_a_retry_of_a_request_that_has_ended_is_not_sent() -> None:
    """The time-out is the client's patience, not a promise."""
    bench = Bench(RouterOptions(retries=(Retry("a", 30.0),)))
    bench.run()
    bench.kernel.run(until_ns=60 * SECOND)
    assert bench.sent() == ["a-p0", "a-d0"]


def test_the_first_attempt_to_succeed_is_the_answer_and_the_other_is_aborted() -> None:
    """The client gets one answer, never a mixture."""
    bench = Bench(RouterOptions(retries=(Retry("a", 0.0, consumer="other"),)), silent=True)
    bench.kernel.run(until_ns=SECOND)
    bench.d[0].answer("a-d0", [1])
    bench.d[1].answer("a-d1", [7, 8, 9], "length")
    assert bench.router.results["a"].tokens == (7, 8, 9)
    assert bench.router.results["a"].decode_engine == "d1"
    assert (bench.d[0].aborted, bench.d[1].aborted) == (["a-d0"], [])


def test_a_failure_is_not_the_end_while_a_retry_is_to_come() -> None:
    """Only the last attempt decides about failure."""
    bench = Bench(RouterOptions(retries=(Retry("a", 1.0, consumer="other"),)), silent=True)
    bench.kernel.run(until_ns=SECOND // 2)
    bench.d[0].answer("a-d0", [], "error")
    assert not bench.router.done.triggered
    bench.kernel.run(until_ns=2 * SECOND)
    bench.d[1].answer("a-d1", [], "error")
    assert bench.router.results["a"].outcome == "error"


def test_a_failure_is_not_the_end_while_another_attempt_runs() -> None:
    """The client waits for whichever comes through."""
    bench = Bench(RouterOptions(retries=(Retry("a", 0.0, consumer="other"),)), silent=True)
    bench.kernel.run(until_ns=SECOND)
    bench.d[0].answer("a-d0", [], "error")
    assert not bench.router.done.triggered
    bench.d[1].answer("a-d1", [7, 8, 9], "length")
    assert bench.router.results["a"].outcome == "length"


def test_a_retry_goes_to_a_living_consumer_when_the_same_is_dead() -> None:
    """A request survives the death of its consumer when its router is patient."""
    bench = Bench(RouterOptions(retries=(Retry("a", 1.0),)), silent=True)
    bench.d[1].silent = False
    bench.kernel.call_later(SECOND // 2, bench.d[0].die)
    assert bench.run() == "length"
    assert bench.router.results["a"].decode_engine == "d1"


@pytest.mark.parametrize(
    ("phase", "aborted_at_p", "aborted_at_d"),
    [
        ("queued_at_p", ["a-p0"], []),
        ("prefill", ["a-p0"], []),
        ("handoff", [], []),
        ("queued_at_d", [], ["a-d0"]),
        ("allocated", [], ["a-d0"]),
        ("decode", [], ["a-d0"]),
    ],
)
def test_a_client_goes_away_on_entering_any_phase(
    phase: str, aborted_at_p: list[str], aborted_at_d: list[str]
) -> None:
    """Exactly the engine that has the request then is told."""
    bench = Bench(RouterOptions(aborts=(Abort("a", on_phase=phase),)))
    seen = Seen()
    bench.world.probes.add(seen)
    assert bench.run() == "abort"
    bench.kernel.run()
    assert (bench.p.aborted, bench.d[0].aborted) == (aborted_at_p, aborted_at_d)
    assert seen.ended == [("a", "abort", [100] if phase == "decode" else [])]


def test_a_client_may_go_away_with_the_last_token() -> None:
    """The only output starts the decode phase and ends the leg at once; the request ends once."""
    bench = Bench(RouterOptions(aborts=(Abort("a", on_phase="decode"),)), silent=True)
    bench.kernel.run(until_ns=SECOND)
    bench.d[0].answer("a-d0", [1], "length")
    assert bench.router.results["a"].outcome == "abort"
    assert bench.router.results["a"].tokens == (1,)


def test_a_client_goes_away_at_a_time() -> None:
    """The time counts from the start of the workload."""
    bench = Bench(RouterOptions(aborts=(Abort("a", at_s=3.0),)), silent=True)
    assert bench.run() == "abort"
    assert bench.kernel.now_ns == 3 * SECOND


def test_a_client_that_is_gone_during_a_hold_is_not_served_after_it() -> None:
    """The producer is told nothing, as no real router tells it; its lease has to end by itself."""
    options = RouterOptions(holds=(Hold("a", 10.0),), aborts=(Abort("a", at_s=1.0),))
    bench = Bench(options)
    assert bench.run() == "abort"
    bench.kernel.run()
    assert bench.sent() == ["a-p0"]
    assert bench.p.aborted == []


def test_a_client_due_to_leave_before_its_request_arrives_leaves_on_arrival() -> None:
    """There is nothing to abort before."""
    world = fake_world()
    engine = FakeEngine(world, "c0")
    router = Router(
        world,
        [],
        [engine],
        [RequestSpec("a", 5 * SECOND, (Segment(5, 20),), 3)],
        RouterOptions(aborts=(Abort("a", at_s=1.0),)),
    )
    router.start()
    world.kernel.run(until=router.done)
    assert router.results["a"].outcome == "abort"
    assert world.kernel.now_ns == 5 * SECOND


def test_phases_are_those_the_request_is_in() -> None:
    """None before and after."""
    bench = Bench(RouterOptions(hand_off_latency_us=5_000))
    phases: dict[str | None, None] = {bench.router.phase_of("a"): None}
    while not bench.router.done.triggered:
        bench.kernel.run(until_ns=bench.kernel.now_ns + 1_000_000)
        phases[bench.router.phase_of("a")] = None
    assert list(phases) == [
        None, "queued_at_p", "prefill", "handoff", "queued_at_d", "allocated", "decode"
    ]  # fmt: skip


times = st.floats(0, 0.3)
disturbances = st.builds(
    RouterOptions,
    holds=st.lists(st.builds(Hold, st.just("a"), times), max_size=1).map(tuple),
    aborts=st.lists(st.builds(lambda s: Abort("a", at_s=s), times), max_size=1).map(tuple),
    retries=st.lists(
        st.builds(Retry, st.just("a"), times, st.booleans(), st.sampled_from(["same", "other"])),
        max_size=3,
    ).map(tuple),
)


@settings(max_examples=150, deadline=None)
@given(options=disturbances, deaths=st.dictionaries(st.sampled_from([0, 1, 2]), times))
def test_every_request_ends_once_whatever_happens(
    options: RouterOptions, deaths: dict[int, float]
) -> None:
    """With any mixture of holds, aborts, retries and deaths, and nothing stays open."""
    bench = Bench(options)
    seen = Seen()
    bench.world.probes.add(seen)
    engines = [bench.p, *bench.d]
    for index, seconds in deaths.items():
        bench.kernel.call_later(round(seconds * SECOND), engines[index].die)
    outcome = bench.run()
    bench.kernel.run()
    assert [(name, how) for name, how, _ in seen.ended] == [("a", outcome)]
    assert outcome in ("length", "abort", "engine-died")
    assert (outcome == "length") == (bench.router.results["a"].tokens == (100, 101, 102))
    assert bench.router.phase_of("a") is None
