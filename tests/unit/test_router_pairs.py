"""Legs that are sent at once, because the producer writes into the consumer's memory."""

from __future__ import annotations

import pytest
from router_engines import STEP_NS, FakeEngine, FakeWorld, fake_world

from sim.engine.connectors import CONNECTORS
from sim.errors import UsageError
from sim.request_ids import leg_of
from sim.router.options import Abort, Hold, Retry, RouterOptions
from sim.router.router import Router
from sim.units import SECOND
from sim.workload import RequestSpec, Segment


class Bench:
    """One producer, two consumers and a request ``a`` of three tokens."""

    def __init__(self, options: RouterOptions | None = None, **consumer: bool) -> None:
        self.world: FakeWorld = fake_world()
        self.p = FakeEngine(self.world, "p0", returned_params={"transfer_id": "tx-a-0"})
        self.d = [FakeEngine(self.world, f"d{i}", **consumer) for i in range(2)]
        self.router = Router(
            self.world,
            [self.p],
            self.d,
            [RequestSpec("a", 0, (Segment(5, 20),), 3)],
            options or RouterOptions(),
            in_pairs=True,
        )
        self.router.start()

    def run(self) -> str:
        self.world.kernel.run(until=self.router.done)
        return self.router.results["a"].outcome

    def sent(self) -> list[tuple[str, int]]:
        records = self.world.kernel.log.records
        return [(r.fields["leg"], r.time_ns) for r in records if r.kind == "leg-sent"]


def test_both_legs_are_sent_at_once_and_know_each_other() -> None:
    """One transfer id; each gets the other's addresses, in the id and in the parameters."""
    bench = Bench()
    assert bench.run() == "length"
    assert bench.sent() == [("a-p0", 0), ("a-d0", 0)]
    to_producer, to_consumer = bench.p.params_of(), bench.d[0].params_of()
    assert to_producer is not None
    assert to_consumer is not None
    assert to_producer["transfer_id"] == to_consumer["transfer_id"] == "tx-a-0"
    assert (to_producer["remote_host"], to_consumer["remote_host"]) == ("host-of-d0", "host-of-p0")
    assert (to_producer["do_remote_decode"], to_consumer["do_remote_prefill"]) == (True, True)
    assert to_producer["remote_tp_size"] == to_consumer["remote_tp_size"] == 1
    for engine, leg in ((bench.p, "a-p0"), (bench.d[0], "a-d0")):
        request_id = engine.requests[0].request_id
        assert "___prefill_addr_host:host-of-p0,handshake:6301,notify:61005_" in request_id
        assert "___decode_addr_host:host-of-d0,handshake:6301,notify:61005_" in request_id
        assert leg_of(request_id) == leg


def test_a_hold_keeps_the_decode_leg_back_and_not_the_prefill() -> None:
    """The producer works meanwhile."""
    bench = Bench(RouterOptions(holds=(Hold("a", 65.0),)))
    assert bench.run() == "length"
    assert bench.sent() == [("a-p0", 0), ("a-d0", 65 * SECOND)]


def test_a_prefill_that_fails_ends_its_decode_leg() -> None:
    """It would wait for ever; the client gets the producer's reason."""
    bench = Bench(silent=True)
    bench.p.finish_reason = "error"
    assert bench.run() == "error"
    assert [leg_of(request_id) for request_id in bench.d[0].aborted] == ["a-d0"]


def test_a_prefill_that_fails_cancels_a_decode_leg_that_is_held_back() -> None:
    """The consumer never hears of the request."""
    bench = Bench(RouterOptions(holds=(Hold("a", 65.0),)))
    bench.p.finish_reason = "error"
    assert bench.run() == "error"
    assert not bench.d[0].requests


def test_a_decode_leg_that_fails_ends_its_prefill() -> None:
    """Nobody needs it any more."""
    bench = Bench()
    bench.p.silent = True
    bench.d[0].finish_reason = "error"
    assert bench.run() == "error"
    assert [leg_of(request_id) for request_id in bench.p.aborted] == ["a-p0"]


def test_a_prefill_whose_decode_leg_succeeded_is_left_alone() -> None:
    """Routers do not cancel a leg that has done its work, even if its answer is late."""
    bench = Bench()
    bench.p.silent = True
    assert bench.run() == "length"
    assert not bench.p.aborted


def test_a_client_that_goes_away_ends_both_legs() -> None:
    """Whatever they do."""
    bench = Bench(RouterOptions(aborts=(Abort("a", on_phase="allocated"),)))
    assert bench.run() == "abort"
    aborted = [*bench.p.aborted, *bench.d[0].aborted]
    assert [leg_of(request_id) for request_id in aborted] == ["a-p0", "a-d0"]


def test_a_retry_repeats_the_decode_leg_on_its_consumer() -> None:
    """With the same transfer id: the producer was told where to write."""
    bench = Bench(RouterOptions(retries=(Retry("a", 0.05),)), silent=True)
    bench.world.kernel.run(until_ns=20 * STEP_NS)
    assert [leg for leg, _ in bench.sent()] == ["a-p0", "a-d0", "a-d1"]
    assert [leg_of(r.request_id) for r in bench.d[0].requests] == ["a-d0", "a-d1"]
    assert bench.d[0].params_of(0) == bench.d[0].params_of(1)


def test_a_retry_with_a_new_transfer_sends_both_legs_again() -> None:
    """To the engines whose turn it is."""
    bench = Bench(RouterOptions(retries=(Retry("a", 0.05, same_transfer_id=False),)), silent=True)
    bench.world.kernel.run(until_ns=20 * STEP_NS)
    assert [leg for leg, _ in bench.sent()] == ["a-p0", "a-d0", "a-p1", "a-d1"]
    assert [leg_of(r.request_id) for r in bench.d[1].requests] == ["a-d1"]


def test_a_retry_elsewhere_with_the_same_transfer_id_is_refused() -> None:
    """The producer would write into the first consumer what the second one asked for."""
    with pytest.raises(UsageError, match=r"decode leg of 'a'.*same_transfer_id: false"):
        Bench(RouterOptions(retries=(Retry("a", 0.05, consumer="other"),)))


@pytest.mark.parametrize(
    ("settings", "writes"),
    [({}, False), ({"read_mode": "false"}, True), ({"read_mode": True}, False)],
)
def test_the_mode_is_read_from_the_configuration(settings: dict[str, object], writes: bool) -> None:
    """As the connector reads it."""
    assert CONNECTORS["moriio"].writes(settings) is writes
