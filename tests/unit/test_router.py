"""The router's ordinary way, and what engines can do to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from router_engines import STEP_NS, FakeEngine, FakeWorld, Seen, fake_world

from sim.engine.options import EngineOptions
from sim.router.options import RouterOptions
from sim.router.router import Router
from sim.units import US
from sim.workload import RequestSpec, Segment, prompt_token_ids

RETURNED = {"remote_engine_id": "p0", "remote_block_ids": [[1, 2]], "transfer_id": "tx-a-0"}
HAND_OFF_NS = 200 * US


def spec(request_id: str = "a", arrival_ns: int = 0, max_tokens: int = 3) -> RequestSpec:
    return RequestSpec(request_id, arrival_ns, (Segment(5, 20),), max_tokens)


def producer(world: FakeWorld, name: str = "p0", **options: Any) -> FakeEngine:
    return FakeEngine(world, name, **{"returned_params": dict(RETURNED), **options})


def serve(
    world: FakeWorld,
    producers: Sequence[FakeEngine],
    consumers: Sequence[FakeEngine],
    requests: Sequence[RequestSpec],
) -> Router:
    router = Router(world, producers, consumers, requests, RouterOptions())
    router.start()
    return router


def test_a_request_is_prefilled_on_a_producer_and_decoded_on_a_consumer() -> None:
    """One token there, all tokens here, both with the whole prompt and greedy."""
    world = fake_world()
    p, d = producer(world), FakeEngine(world, "d0")
    router = serve(world, [p], [d], [spec()])
    assert world.kernel.run(until=router.done)
    assert [r.request_id for r in (*p.requests, *d.requests)] == ["a-p0", "a-d0"]
    assert [r.sampling_params.max_tokens for r in (*p.requests, *d.requests)] == [1, 3]
    for request in (*p.requests, *d.requests):
        assert request.prompt_token_ids == prompt_token_ids(spec(), vocab_size=1_000).tolist()
        assert request.sampling_params.temperature == 0
        assert request.sampling_params.ignore_eos
    assert router.results["a"].outcome == "length"
    assert router.results["a"].tokens == (100, 101, 102)
    assert router.recomputed == 0


def test_the_producer_is_told_that_somebody_else_decodes() -> None:
    """The parameters are those of vLLM's proxies, complete and with a transfer id."""
    world = fake_world()
    p = producer(world)
    world.kernel.run(until=serve(world, [p], [FakeEngine(world, "d0")], [spec()]).done)
    assert p.params_of() == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
        "transfer_id": "tx-a-0",
    }


def test_the_consumer_gets_a_copy_of_what_the_producer_returned_and_the_rest_is_filled_in() -> None:
    """Connectors change the parameters they get, which nobody else may notice."""
    world = fake_world()
    p, d = (
        producer(world, options=EngineOptions(tp_size=4, executor="multi-process")),
        FakeEngine(world, "d0"),
    )
    world.kernel.run(until=serve(world, [p], [d], [spec()]).done)
    params = d.params_of()
    assert params == {**RETURNED, "remote_dp_size": 1, "tp_size": 4}
    assert params["remote_block_ids"] is not p.returned_params["remote_block_ids"]


def test_what_the_producer_says_of_itself_is_not_overwritten() -> None:
    """The router fills gaps only."""
    world = fake_world()
    p = producer(world, returned_params={**RETURNED, "tp_size": 8, "remote_dp_size": 2})
    d = FakeEngine(world, "d0")
    world.kernel.run(until=serve(world, [p], [d], [spec()]).done)
    assert (d.params_of()["tp_size"], d.params_of()["remote_dp_size"]) == (8, 2)


def test_times_of_a_request_are_those_of_its_client() -> None:
    """Arrival, first token (of the decode leg) and end, in nanoseconds of the run."""
    world = fake_world()
    router = serve(world, [producer(world)], [FakeEngine(world, "d0")], [spec(arrival_ns=1_000)])
    world.kernel.run(until=router.done)
    result = router.results["a"]
    first = 1_000 + 2 * STEP_NS + HAND_OFF_NS + 2 * STEP_NS
    assert result.arrival_ns == 1_000
    assert result.first_token_ns == first
    assert result.end_ns == first + 2 * STEP_NS
    assert (result.prefill_engine, result.decode_engine) == ("p0", "d0")
    assert result.remote_cached_tokens == 7


def test_engines_take_turns_and_dead_ones_are_left_out() -> None:
    """Round robin, over each role by itself."""
    world = fake_world()
    producers = [producer(world, f"p{i}") for i in range(2)]
    consumers = [FakeEngine(world, f"d{i}") for i in range(3)]
    consumers[1].alive = False
    requests = [spec(f"r{i}", arrival_ns=i) for i in range(4)]
    world.kernel.run(until=serve(world, producers, consumers, requests).done)
    assert [len(engine.requests) for engine in producers] == [2, 2]
    assert [len(engine.requests) for engine in consumers] == [2, 0, 2]


def test_a_prefill_without_parameters_goes_on_without_and_is_counted() -> None:
    """The consumer then prefills by itself."""
    world = fake_world()
    d = FakeEngine(world, "d0")
    router = serve(world, [producer(world, returned_params=None)], [d], [spec()])
    world.kernel.run(until=router.done)
    assert d.params_of() is None
    assert router.recomputed == 1
    assert router.results["a"].outcome == "length"


def test_without_producers_there_is_one_leg_without_parameters() -> None:
    """A colocated engine does both."""
    world = fake_world()
    engine = FakeEngine(world, "c0")
    router = serve(world, [], [engine], [spec()])
    world.kernel.run(until=router.done)
    assert [request.request_id for request in engine.requests] == ["a-c0"]
    assert engine.params_of() is None
    assert router.results["a"].tokens == (100, 101, 102)
    assert router.results["a"].prefill_engine is None


@pytest.mark.parametrize("reason", ["error", "abort"])
@pytest.mark.parametrize("failing", ["p0", "d0"])
def test_a_leg_that_fails_ends_the_request_in_the_same_way(reason: str, failing: str) -> None:
    """The client gets the engine's finish reason, and no decode leg follows a failed prefill."""
    world = fake_world()
    p, d = producer(world), FakeEngine(world, "d0")
    {"p0": p, "d0": d}[failing].finish_reason = reason
    router = serve(world, [p], [d], [spec()])
    world.kernel.run(until=router.done)
    result = router.results["a"]
    assert result.outcome == reason
    assert len(d.requests) == (failing == "d0")
    # The client never sees the token of a prefill leg.
    assert result.tokens == ((100, 101, 102) if failing == "d0" else ())
    assert result.decode_engine == ("d0" if failing == "d0" else None)


@pytest.mark.parametrize("role", ["p0", "d0"])
def test_the_death_of_an_engine_ends_its_legs_only(role: str) -> None:
    """Requests elsewhere go on, and what the dead engine still sends is not heard."""
    world = fake_world()
    engines = {name: producer(world, name) for name in ("p0", "p1")}
    engines |= {name: FakeEngine(world, name) for name in ("d0", "d1")}
    engines[role].silent = True
    router = serve(
        world,
        [engines["p0"], engines["p1"]],
        [engines["d0"], engines["d1"]],
        [spec("a"), spec("b", arrival_ns=1)],
    )
    world.kernel.call_later(100 * STEP_NS, engines[role].die)
    world.kernel.run(until=router.done)
    engines[role].answer(engines[role].requests[0].request_id, [1], "length")
    assert router.results["a"].outcome == "engine-died"
    assert router.results["b"].outcome == "length"


def test_a_request_that_finds_no_living_engine_ends() -> None:
    """Nobody waits for an engine that may never come back."""
    world = fake_world()
    p, d = producer(world), FakeEngine(world, "d0", alive=False)
    router = serve(world, [p], [d], [spec()])
    world.kernel.run(until=router.done)
    assert router.results["a"].outcome == "engine-died"
    assert router.results["a"].decode_engine is None


def test_late_outputs_of_an_ended_request_change_nothing() -> None:
    """An engine may answer after the client is gone."""
    world = fake_world()
    p, d = producer(world), FakeEngine(world, "d0", silent=True)
    router = serve(world, [p], [d], [spec()])
    world.kernel.run(until_ns=50 * STEP_NS)
    router.abort("a")
    d.answer("a-d0", [1, 2], "length")
    router.abort("a")
    assert router.results["a"].outcome == "abort"
    assert d.aborted == ["a-d0"]


def test_a_later_request_gets_a_done_of_its_own() -> None:
    """A probe after the workload is waited for like the workload."""
    world = fake_world()
    router = serve(world, [producer(world)], [FakeEngine(world, "d0")], [spec()])
    world.kernel.run(until=router.done)
    before = world.kernel.now_ns
    router.submit(spec("late", arrival_ns=500))
    assert not router.done.triggered
    world.kernel.run(until=router.done)
    assert router.results["late"].arrival_ns == before + 500


def test_probes_hear_of_the_beginning_and_the_end_of_each_request() -> None:
    """Once each, with what the client got."""
    world = fake_world()
    seen = Seen()
    world.probes.add(seen)
    router = serve(world, [producer(world)], [FakeEngine(world, "d0")], [spec()])
    world.kernel.run(until=router.done)
    assert seen.started == ["a"]
    assert seen.ended == [("a", "length", [100, 101, 102])]


def test_the_event_log_tells_the_story_without_long_lists() -> None:
    """Tokens are a count and a digest."""
    world = fake_world()
    router = serve(world, [producer(world)], [FakeEngine(world, "d0")], [spec()])
    world.kernel.run(until=router.done)
    records = world.kernel.log.records
    assert [record.kind for record in records] == [
        "request-arrived",
        "leg-sent",
        "leg-finished",
        "leg-sent",
        "leg-finished",
        "request-ended",
    ]
    assert {record.actor for record in records} == {"router"}
    assert records[-1].fields["tokens"] == 3
    assert not any(isinstance(v, list) for record in records for v in record.fields.values())


def test_the_digest_of_tokens_tells_different_answers_apart() -> None:
    """Otherwise equal hashes of two runs would say nothing about their outputs."""
    digests = []
    for shift in (0, 1):
        world = fake_world()
        d = FakeEngine(world, "d0", silent=True)
        router = serve(world, [producer(world)], [d], [spec()])
        world.kernel.run(until_ns=50 * STEP_NS)
        d.answer("a-d0", [1, 2, 3 + shift], "length")
        digests.append(world.kernel.log.records[-1].fields["digest"])
        assert router.done.triggered
    assert digests[0] != digests[1]
