"""The zmq facade where only a simulation can look: crashes, partitions, rules, replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq as real_zmq

from sim.errors import DeadlockError, UnsupportedByFacade
from sim.guest.facades.zmq import Greeting, make
from sim.guest.facades.zmq.pipe import HighWaterMark
from sim.kernel import Kernel, Node, Process, Seed
from sim.network import MessageInFlight, Network
from sim.units import MIB, MS, SECOND
from sim.verdict import Drop, Verdict

PORT = 6301
AT_P = f"tcp://10.0.0.1:{PORT}"


class World:
    """A prefill and a decode node with the facade of zmq."""

    def __init__(self, seed: int = 1, *, perturb: bool = False) -> None:
        self.kernel = Kernel(Seed(seed), perturb=perturb)
        self.network = Network(self.kernel)
        self.modules = make(self.kernel, self.network)
        self.zmq: Any = self.modules["zmq"]
        self.p = Process(Node("p0", "10.0.0.1"), "core")
        self.d = Process(Node("d0", "10.0.0.2"), "core")
        self.got: list[bytes] = []

    def start(self, process: Process, body: Callable[[], Any], name: str = "t") -> None:
        self.kernel.spawn(process, body, name=name)

    def listen(self) -> None:
        """Body of a thread that writes down what comes to P's port."""
        router = self.zmq.Context().socket(self.zmq.ROUTER)
        router.bind(f"tcp://*:{PORT}")
        while True:
            self.got.append(router.recv_multipart()[-1])

    def say(self, *texts: bytes, every_ns: int = MS) -> None:
        """Body of a thread that sends to P's port."""
        dealer = self.zmq.Context.instance().socket(self.zmq.DEALER)
        dealer.connect(AT_P)
        for text in texts:
            dealer.send(text)
            self.kernel.sleep(every_ns)

    def run_for(self, ns: int) -> None:
        self.kernel.run(until_ns=self.kernel.now_ns + ns)
        assert [f.text() for f in self.kernel.failures] == []


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.kernel.running():
        yield world


def test_messages_of_an_outage_reach_the_restarted_process(world: World) -> None:
    """Those on their way when the listener died are lost, later ones wait for its successor."""
    world.start(world.p, world.listen)
    texts = [str(i).encode() for i in range(10)]
    world.start(world.d, lambda: world.say(*texts))
    world.run_for(2 * MS + 100_000)
    assert world.got == texts[:3]
    world.kernel.call_later(950_000 - 50_000, world.kernel.crash, world.p)  # "3" has been sent
    world.run_for(3 * SECOND)
    successor = Process(world.p.node, "core", incarnation=1)
    world.start(successor, world.listen)
    world.run_for(SECOND)
    assert world.got == [*texts[:3], *texts[4:]]


def test_unreachable_peer_does_not_hide_a_deadlock(world: World) -> None:
    """A socket that waits for its peer makes nothing happen, so the run ends with a report."""

    def body() -> None:
        req = world.zmq.Context().socket(world.zmq.REQ)
        req.connect(AT_P)
        req.send(b"?")
        req.recv()

    world.start(world.d, body, "asker")
    with pytest.raises(DeadlockError) as caught:
        world.kernel.run(until=world.kernel.event())
    text = str(caught.value)
    assert f"d0/core/asker waits for a message on a REQ socket of {AT_P}" in text
    assert "test_zmq_on_network:" in text


def test_reconnecting_takes_one_to_two_intervals(world: World) -> None:
    """After a refusal the next attempt comes between one and two RECONNECT_IVL."""
    world.start(world.d, lambda: world.say(b"x"))
    world.run_for(MS)
    world.start(world.p, world.listen)
    world.run_for(98 * MS)
    assert world.got == []
    world.run_for(105 * MS)
    assert world.got == [b"x"]


def test_partition_delays_but_does_not_lose(world: World) -> None:
    """Messages sent into a partition arrive after it, in order."""
    world.start(world.p, world.listen)
    world.start(world.d, lambda: world.say(b"1", b"2", b"3"))
    world.kernel.call_later(MS // 2, world.network.partition, world.p.node, world.d.node)
    world.run_for(SECOND)
    assert world.got == [b"1"]
    world.network.heal(world.p.node, world.d.node)
    world.run_for(MS)
    assert world.got == [b"1", b"2", b"3"]


def test_rules_judge_what_guests_send(world: World) -> None:
    """A rule sees the frames that travel, without what only the receiver adds."""
    seen: list[MessageInFlight] = []

    class Once:
        def judge(self, item: MessageInFlight) -> Verdict | None:
            seen.append(item)
            return Drop() if item.frames == (b"1",) else None

    world.network.verdicts.add(Once())
    world.start(world.p, world.listen)
    world.start(world.d, lambda: world.say(b"1", b"2"))
    world.run_for(SECOND)
    assert world.got == [b"2"]
    assert [(item.frames, item.target_port) for item in seen] == [((b"1",), PORT), ((b"2",), PORT)]


def test_killed_thread_sends_nothing_any_more(world: World) -> None:
    """Neither a finally block nor the loss of the last reference has an effect after a crash."""

    def body() -> None:
        context = world.zmq.Context()
        dealer = context.socket(world.zmq.DEALER)
        dealer.connect(AT_P)
        try:
            world.kernel.sleep(SECOND)
        finally:
            dealer.send(b"from the grave")
            context.destroy()

    world.start(world.p, world.listen)
    world.start(world.d, body)
    world.kernel.call_later(MS, world.kernel.crash, world.d)
    world.run_for(2 * SECOND)
    world.kernel.close()
    assert world.got == []
    assert "message-sent" not in [record.kind for record in world.kernel.log.records]


def test_crash_ends_what_lingers(world: World) -> None:
    """A socket that lingers for its last message dies with its process."""

    def body() -> None:
        dealer = world.zmq.Context().socket(world.zmq.DEALER)
        dealer.connect(AT_P)
        dealer.send(b"x")
        dealer.close()

    world.start(world.d, body)
    world.run_for(MS)
    accepted: list[Any] = []
    router = Greeting(real_zmq.ROUTER, b"")
    world.network.listen(
        world.p, "*", PORT, hello=router, on_accept=lambda *pair: accepted.append(pair)
    )
    world.run_for(MS)  # the next attempt to connect is due, but not before another 98 ms
    world.kernel.crash(world.d)
    world.run_for(SECOND)
    assert accepted == []


def test_routing_id_stays_in_use_until_its_messages_are_read(world: World) -> None:
    """As in libzmq: a peer that comes back before that, under the same id, is ignored."""

    def say(text: bytes) -> None:
        dealer = world.zmq.Context.instance().socket(world.zmq.DEALER)
        dealer.setsockopt(world.zmq.IDENTITY, b"d0")
        dealer.connect(AT_P)
        dealer.send(text)
        world.kernel.sleep(10 * MS)

    def slow_listen() -> None:
        router = world.zmq.Context().socket(world.zmq.ROUTER)
        router.bind(f"tcp://*:{PORT}")
        for pause_ms in (500, 100):
            world.kernel.sleep(pause_ms * MS)
            while router.poll(0):
                world.got.append(router.recv_multipart()[-1])

    def talk() -> None:
        say(b"1")
        say(b"too early")
        world.kernel.sleep(500 * MS)
        say(b"3")

    world.start(world.p, slow_listen)
    world.run_for(MS)
    world.start(world.d, talk)
    world.run_for(SECOND)
    assert world.got == [b"1", b"3"]


def test_answers_from_before_the_question_are_discarded(world: World) -> None:
    """REQ forgets what came while it had asked nothing."""

    def answer() -> None:
        router = world.zmq.Context().socket(world.zmq.ROUTER)
        router.bind(f"tcp://*:{PORT}")
        world.kernel.sleep(10 * MS)
        router.send_multipart([b"q", b"", b"early"])
        router.recv_multipart()
        router.send_multipart([b"q", b"", b"answer"])
        world.kernel.sleep(SECOND)

    def ask() -> None:
        req = world.zmq.Context().socket(world.zmq.REQ)
        req.setsockopt(world.zmq.IDENTITY, b"q")
        req.connect(AT_P)
        world.kernel.sleep(20 * MS)
        req.send(b"?")
        world.got.append(req.recv())

    world.start(world.p, answer)
    world.run_for(MS)
    world.start(world.d, ask)
    world.run_for(SECOND)
    assert world.got == [b"answer"]


def test_connecting_to_what_is_no_zmq_sends_nothing(world: World) -> None:
    """A port where somebody speaks something else is tried once, and the socket just queues."""
    attempts: list[Any] = []
    received: list[Any] = []

    def accept(endpoint: Any, _hello: object) -> None:
        attempts.append(endpoint)
        endpoint.on_message = received.append

    world.network.listen(world.p, "*", PORT, hello="HTTP/1.1", on_accept=accept)
    world.start(world.d, lambda: world.say(b"x"))
    world.run_for(SECOND)
    assert (received, len(attempts)) == ([], 1)


def test_queue_is_writable_again_when_half_of_it_was_read() -> None:
    """A writer at the high-water mark hears of reads only then, as in libzmq."""
    mark = HighWaterMark(4)
    for _ in range(4):
        mark.wrote()
    full = [mark.full]
    for _ in range(4):
        mark.took()
        full.append(mark.full)
    assert full == [True, True, False, False, False]


def test_reader_at_its_mark_leaves_the_rest_to_the_transport(world: World) -> None:
    """Beyond RCVHWM messages are not acknowledged, so their sender is held back."""
    pushed: list[int] = []

    def push() -> None:
        socket = world.zmq.Context().socket(world.zmq.PUSH)
        socket.setsockopt(world.zmq.SNDHWM, 1)
        socket.connect(AT_P)
        for i in range(20):
            socket.send(b"%d" % i + bytes(MIB))
            pushed.append(i)

    def pull() -> None:
        socket = world.zmq.Context().socket(world.zmq.PULL)
        socket.setsockopt(world.zmq.RCVHWM, 2)
        socket.bind(f"tcp://*:{PORT}")
        world.kernel.sleep(SECOND)
        while True:
            world.got.append(socket.recv()[:-MIB])

    world.start(world.p, pull)
    world.start(world.d, push)
    world.run_for(SECOND // 2)
    assert len(pushed) == 7  # two read, four in the window of 4 MiB, one queued
    world.run_for(SECOND)
    assert world.got == [b"%d" % i for i in range(20)]


def test_dropped_references_close_the_socket(world: World) -> None:
    """As with pyzmq, a socket that nobody holds any more is closed."""
    addresses: list[str | None] = []

    def body() -> None:
        context = world.zmq.Context()
        held = context.socket(world.zmq.ROUTER)
        held.bind(f"tcp://*:{PORT}")
        other = context.socket(world.zmq.ROUTER)
        with pytest.raises(real_zmq.ZMQError):
            other.bind(f"tcp://*:{PORT}")
        del held
        other.bind(f"tcp://*:{PORT}")
        addresses.append(other.last_endpoint.decode())

    world.start(world.p, body)
    world.run_for(MS)
    assert addresses == [f"tcp://0.0.0.0:{PORT}"]


def test_each_process_has_its_own_instance(world: World) -> None:
    """Context.instance() is one for each simulated process."""
    contexts: list[Any] = []
    for process in (world.p, world.d, world.p):
        world.start(process, lambda: contexts.append(world.zmq.Context.instance()))
    world.run_for(MS)
    assert contexts[0] is contexts[2] is not contexts[1]


def test_unroutable_answer_is_in_the_log(world: World) -> None:
    """A ROUTER's silent drop is told to the reader of the log, with the message's digest."""

    def body() -> None:
        router = world.zmq.Context().socket(world.zmq.ROUTER)
        router.bind(f"tcp://*:{PORT}")
        router.send_multipart([b"nobody", b"x"])

    world.start(world.p, body)
    world.run_for(MS)
    (record,) = world.kernel.log.records
    assert (record.kind, record.fields["reason"]) == ("message-dropped", "unroutable")
    assert record.fields["source"] == "p0/core"


def test_slow_subscriber_loses_messages(world: World) -> None:
    """PUB drops for a subscriber that is cut off, beyond window and mark, and says so."""

    def publish() -> None:
        pub = world.zmq.Context().socket(world.zmq.PUB)
        pub.setsockopt(world.zmq.SNDHWM, 2)
        pub.bind(f"tcp://*:{PORT}")
        world.kernel.sleep(SECOND)
        for i in range(6):
            pub.send(b"%d" % i + bytes(3 * MIB))

    def subscribe() -> None:
        sub = world.zmq.Context().socket(world.zmq.SUB)
        sub.subscribe("")
        sub.connect(AT_P)
        while True:
            world.got.append(sub.recv()[:1])

    world.start(world.p, publish)
    world.start(world.d, subscribe)
    world.run_for(SECOND - 1)
    world.network.partition(world.p.node, world.d.node)
    world.run_for(SECOND)
    world.network.heal(world.p.node, world.d.node)
    world.run_for(SECOND)
    # Two go on their way before the window of 4 MiB is full, two are queued.
    assert world.got == [b"0", b"1", b"2", b"3"]
    reasons = [r.fields.get("reason") for r in world.kernel.log.records]
    assert reasons.count("high-water-mark") == 2


def test_foreign_message_on_a_listening_port(world: World) -> None:
    """Whoever speaks the protocol can send anything to a socket that listens."""
    stranger = Process(Node("x0", "10.0.0.66"), "scanner")
    world.start(world.p, world.listen)
    world.run_for(MS)
    world.network.dial(
        stranger,
        "10.0.0.1",
        PORT,
        hello=Greeting(real_zmq.DEALER, b""),
        on_open=lambda endpoint, _greeting: endpoint.send([b"\xff\x00", b"junk"]),
        on_refused=lambda: pytest.fail("refused"),
    )
    world.run_for(MS)
    assert world.got == [b"junk"]


@pytest.mark.parametrize(
    "use",
    [
        lambda zmq: zmq.proxy,
        lambda zmq: zmq.Context().socket(zmq.XPUB),
        lambda zmq: zmq.Context().socket(zmq.REQ).setsockopt(zmq.REQ_RELAXED, 1),
        lambda zmq: zmq.Context().socket(zmq.REQ).connect("udp://10.0.0.1:1"),
        lambda zmq: zmq.Context().socket(zmq.PULL).recv(copy=False),
        lambda zmq: zmq.Context().socket(zmq.PULL).get_monitor_socket(),
        lambda zmq: zmq.asyncio.Context(),
        lambda zmq: zmq.Context(2).set(zmq.IO_THREADS, 2),
    ],
    ids=["proxy", "XPUB", "option", "transport", "frames", "monitor", "asyncio", "threads"],
)
def test_what_has_no_stand_in_ends_the_run(world: World, use: Callable[[Any], Any]) -> None:
    """A hole of the facade names the place of use, even if the guest swallows the error."""

    def body() -> None:
        try:
            use(world.zmq)
        except BaseException:
            return

    world.start(world.p, body)
    with pytest.raises(UnsupportedByFacade, match=r"test_zmq_on_network:"):
        world.kernel.run()


def history(seed: int) -> tuple[tuple[bytes, ...], str]:
    """Two senders with several threads each, and a hash over everything that happened."""
    world = World(seed, perturb=True)
    with world.kernel.running():
        world.start(world.p, world.listen)
        for name in ("a", "b", "c"):
            texts = [f"{name}{i}".encode() for i in range(4)]
            world.start(world.d, lambda texts=texts: world.say(*texts, every_ns=0), name)
        world.run_for(SECOND)
        return tuple(world.got), world.kernel.log.digest()


def test_perturbed_runs_differ_by_seed_and_replay() -> None:
    """Each sender's order is kept, the senders interleave, and a seed gives its run again."""
    runs = {seed: history(seed) for seed in range(20)}
    for got, _digest in runs.values():
        for name in (b"a", b"b", b"c"):
            assert [t for t in got if t[:1] == name] == [name + b"%d" % i for i in range(4)]
    assert len({got for got, _ in runs.values()}) > 5
    assert all(history(seed) == runs[seed] for seed in (0, 7, 19))
