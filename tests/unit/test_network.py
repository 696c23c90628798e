"""Connections between nodes: order, rules, partitions, crash and restart."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from network_world import LATENCY_NS, PORT, World

from sim.errors import TestbedError
from sim.kernel import Node, Process
from sim.network import Endpoint, MessageInFlight
from sim.verdict import Corrupt, Delay, Drop, Duplicate, Fail, Verdict


class Rule:
    """The verdict for the first frame that a table names."""

    def __init__(self, table: dict[bytes, Verdict]) -> None:
        self.table = table
        self.items: list[MessageInFlight] = []

    def judge(self, item: MessageInFlight) -> Verdict | None:
        self.items.append(item)
        return self.table.get(item.frames[0])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def connection(world: World) -> Endpoint:
    world.listen()
    return world.connect()


def send(connection: Endpoint, *texts: str) -> None:
    for text in texts:
        connection.send([text.encode()])


def test_messages_arrive_in_order_one_latency_later(world: World, connection: Endpoint) -> None:
    """A connection delivers what was sent, once and in order."""
    sent_ns = world.kernel.now_ns
    send(connection, "a", "b", "c")
    world.pass_time()
    assert world.got == [(sent_ns + LATENCY_NS, [t]) for t in (b"a", b"b", b"c")]


def test_loopback_is_faster(world: World) -> None:
    """Inside a node a message takes the loopback latency."""
    neighbour = Process(world.server.node, "router")
    world.listen()
    connection = world.connect(neighbour)
    sent_ns = world.kernel.now_ns
    send(connection, "a")
    world.pass_time()
    assert world.got == [(sent_ns + 10_000, [b"a"])]


def test_answers_go_back_on_the_same_connection(world: World, connection: Endpoint) -> None:
    """Both ends send and receive."""
    answers: list[Any] = []
    connection.on_message = answers.append
    world.accepted[0].send([b"yes", b"no"])
    world.pass_time()
    assert answers == [[b"yes", b"no"]]


def test_nobody_listening_is_refused(world: World) -> None:
    """An attempt to connect fails after a round trip, and works once there is a listener."""
    world.network.directory.add_node(world.server.node)
    refused: list[int] = []
    world.network.dial(
        world.client, "10.0.0.2", PORT, hello="", on_open=lambda *_: pytest.fail("opened"),
        on_refused=lambda: refused.append(world.kernel.now_ns),
    )  # fmt: skip
    world.pass_time()
    assert refused == [2 * LATENCY_NS]
    world.listen()
    assert world.connect()


def test_waiting_for_a_listener_tells_when_there_is_one(world: World) -> None:
    """Whoever was refused hears of the listener, once, and not of other addresses."""
    told: list[str] = []
    directory = world.network.directory
    directory.when_listening(world.client, "10.0.0.2", PORT, lambda: told.append("port"))
    directory.when_listening(world.client, "10.0.0.2", 1, lambda: told.append("other port"))
    assert told == []
    world.listen().close()
    world.listen()
    assert told == ["port"]


def test_address_in_use(world: World) -> None:
    """One listener for an address; a closed one frees it, and foreign hosts are refused."""
    first = world.listen()
    with pytest.raises(OSError, match="in use") as caught:
        world.listen()
    assert caught.value.errno == errno.EADDRINUSE
    first.close()
    world.listen()
    with pytest.raises(OSError, match="assign"):
        world.network.listen(world.client, "10.0.0.2", 1, hello="", on_accept=lambda *_: None)


def test_loopback_listener_is_not_reached_from_outside(world: World) -> None:
    """Only the node itself reaches what is bound to 127.0.0.1."""
    world.network.listen(world.server, "127.0.0.1", PORT, hello="", on_accept=lambda *_: None)
    find = world.network.directory.find
    assert find(world.server.node, "localhost", PORT) is not None
    assert find(world.client.node, "d0", PORT) is None


def test_allocated_ports_are_free_and_reproducible(world: World) -> None:
    """Ports come in a fixed order for each node and skip those in use."""
    node = world.server.node
    first = world.network.allocate_port(node)
    world.network.listen(world.server, "*", first + 1, hello="", on_accept=lambda *_: None)
    assert world.network.allocate_port(node) == first + 2
    assert world.network.allocate_port(world.client.node) == first


# ---------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("verdict", "arrivals"),
    [
        (Drop(), ["a", "c"]),
        (Delay(7 * LATENCY_NS), ["a", "b", "c"]),
        (Duplicate(LATENCY_NS), ["a", "b", "c", "b"]),
        (Corrupt(lambda frames: [f.upper() for f in frames]), ["a", "B", "c"]),
    ],
    ids=["drop", "delay", "duplicate", "corrupt"],
)
def test_verdicts_change_the_judged_message_only(
    world: World, connection: Endpoint, verdict: Verdict, arrivals: list[str]
) -> None:
    """Each verdict does to one message what it says and leaves its neighbours alone."""
    world.network.verdicts.add(Rule({b"b": verdict}))
    send(connection, "a", "b", "c")
    world.pass_time(20)
    assert world.texts == arrivals


def test_verdict_that_a_network_cannot_honour(world: World, connection: Endpoint) -> None:
    """A network has no error to report to a sender."""
    world.network.verdicts.add(Rule({b"a": Fail("x", "y")}))
    with pytest.raises(TestbedError, match="Fail"):
        send(connection, "a")


def test_rules_see_both_directions_with_their_ports(world: World, connection: Endpoint) -> None:
    """The listener's port tells a request from a reply between the same nodes."""
    rule = Rule({})
    world.network.verdicts.add(rule)
    send(connection, "ask")
    world.accepted[0].send([b"answer"], kind="other")
    ask, answer = rule.items
    assert (ask.source_node, ask.target_node) == (world.client.node, world.server.node)
    assert (answer.source_node, answer.target_node) == (world.server.node, world.client.node)
    assert (ask.target_port, answer.source_port) == (PORT, PORT)
    assert ask.source_port == answer.target_port != PORT
    assert (ask.kind, answer.kind, ask.frames) == ("message", "other", (b"ask",))


def test_a_delay_holds_up_its_connection_and_no_other(world: World, connection: Endpoint) -> None:
    """Nothing overtakes a delayed message on its connection, the close included."""
    world.network.verdicts.add(Rule({b"b": Delay(5 * LATENCY_NS)}))
    other = world.connect()
    sent_ns = world.kernel.now_ns
    send(connection, "a", "b", "c")
    send(other, "d")
    connection.close()
    world.pass_time()
    late_ns = sent_ns + 6 * LATENCY_NS
    assert world.texts == ["a", "d", "b", "c"]
    assert [time_ns for time_ns, _frames in world.got[2:]] == [late_ns, late_ns]
    assert world.lost == ["server"]


def test_a_delay_that_is_over_leaves_no_trace(world: World, connection: Endpoint) -> None:
    """Messages that are sent after a delayed one has arrived take one latency again."""
    world.network.verdicts.add(Rule({b"a": Delay(5 * LATENCY_NS)}))
    send(connection, "a")
    world.pass_time()
    sent_ns = world.kernel.now_ns
    send(connection, "b")
    world.pass_time()
    assert world.got[1] == (sent_ns + LATENCY_NS, [b"b"])


def test_what_a_partition_held_comes_before_what_is_delayed(
    world: World, connection: Endpoint
) -> None:
    """Healing neither hurries a delayed message nor holds up those before it."""
    world.network.verdicts.add(Rule({b"b": Delay(8 * LATENCY_NS)}))
    world.network.partition(world.client.node, world.server.node)
    sent_ns = world.kernel.now_ns
    send(connection, "a", "b", "c")
    world.pass_time(2)
    world.network.heal(world.client.node, world.server.node)
    world.pass_time()
    assert [(time_ns - sent_ns) // LATENCY_NS for time_ns, _frames in world.got] == [3, 9, 9]
    assert world.texts == ["a", "b", "c"]


def test_copy_for_a_closed_connection_is_lost(world: World, connection: Endpoint) -> None:
    """A copy that is due after the close of its connection does not arrive."""
    world.network.verdicts.add(Rule({b"b": Duplicate(5 * LATENCY_NS)}))
    send(connection, "a", "b")
    connection.close()
    world.pass_time()
    assert world.texts == ["a", "b"]
    assert [e["reason"] for e in world.events("message-dropped")] == ["connection-closed"]


def test_log_tells_the_way_of_a_message(world: World, connection: Endpoint) -> None:
    """Sending, delivery and loss carry the same digest, source, target, port and size."""
    world.network.verdicts.add(Rule({b"lost": Drop()}))
    send(connection, "kept", "lost")
    world.pass_time()
    kept, lost = world.events("message-sent")
    assert kept["digest"] != lost["digest"]
    (delivered,) = world.events("message-delivered")
    (dropped,) = world.events("message-dropped")
    assert delivered == {k: v for k, v in kept.items() if k != "what"}
    assert (dropped["digest"], dropped["reason"]) == (lost["digest"], "verdict")
    assert (kept["source"], kept["target"]) == ("p0/core", "d0/core")
    assert (kept["port"], kept["bytes"], len(kept["digest"])) == (PORT, 4, 8)


# ----------------------------------------------------------------- partitions


def test_partition_holds_messages_until_it_is_healed(world: World, connection: Endpoint) -> None:
    """Nothing is lost: what would have arrived comes in order, one latency after the heal."""
    send(connection, "on its way")
    world.network.partition(world.client.node, world.server.node)
    send(connection, "sent meanwhile")
    world.pass_time(100)
    assert world.texts == []
    healed_ns = world.kernel.now_ns
    world.network.heal(world.client.node, world.server.node)
    send(connection, "sent afterwards")
    world.pass_time()
    assert world.texts == ["on its way", "sent meanwhile", "sent afterwards"]
    assert {time for time, _ in world.got} == {healed_ns + LATENCY_NS}


def test_partition_of_one_way_lets_the_other_through(world: World, connection: Endpoint) -> None:
    """Only the direction that was named is cut."""
    answers: list[Any] = []
    connection.on_message = answers.append
    world.network.partition(world.client.node, world.server.node, both_ways=False)
    send(connection, "held")
    world.accepted[0].send([b"passes"])
    world.pass_time(100)
    assert (world.texts, answers) == ([], [[b"passes"]])


def test_healing_one_pair_leaves_others_cut(world: World, connection: Endpoint) -> None:
    """Partitions are of pairs of nodes."""
    third = Node("p1", "10.0.0.3")
    world.network.partition(world.client.node, world.server.node)
    world.network.partition(third, world.server.node)
    send(connection, "a")
    world.pass_time()
    world.network.heal(third, world.server.node)
    world.pass_time()
    assert world.texts == []
    world.network.heal(world.server.node, world.client.node)
    world.pass_time()
    assert world.texts == ["a"]


def test_connecting_during_a_partition_waits_for_its_end(world: World) -> None:
    """Attempts to connect are held like messages."""
    world.listen()
    opened: list[int] = []
    world.network.partition(world.client.node, world.server.node)
    world.network.dial(
        world.client, "10.0.0.2", PORT, hello="", on_refused=lambda: pytest.fail("refused"),
        on_open=lambda *_: opened.append(world.kernel.now_ns),
    )  # fmt: skip
    world.pass_time(100)
    assert opened == []
    world.network.heal(world.client.node, world.server.node)
    healed_ns = world.kernel.now_ns
    world.pass_time()
    assert opened == [healed_ns + 2 * LATENCY_NS]


# ------------------------------------------------------- closing and crashing


def test_close_comes_after_what_was_sent(world: World, connection: Endpoint) -> None:
    """The other end gets every message, then the close."""
    send(connection, "last")
    connection.close()
    world.pass_time()
    assert (world.texts, world.lost) == (["last"], ["server"])


def test_crash_closes_connections_and_frees_the_address(world: World, connection: Endpoint) -> None:
    """Peers see a close, later messages are dropped, and a successor can listen at once."""
    world.kernel.crash(world.server)
    send(connection, "to the dead")
    successor = Process(world.server.node, "core", incarnation=1)
    world.listen(successor)
    world.pass_time()
    assert (world.texts, world.lost) == ([], ["client"])
    assert [e["reason"] for e in world.events("message-dropped")] == ["connection-closed"]
    send(world.connect(), "to the living")
    world.pass_time()
    assert world.texts == ["to the living"]


def test_what_a_process_sent_before_its_crash_arrives(world: World, connection: Endpoint) -> None:
    """The operating system outlives the process."""
    send(connection, "last words")
    world.kernel.crash(world.client)
    world.pass_time()
    assert (world.texts, world.lost) == (["last words"], ["server"])


def test_crash_while_connecting_leaves_nothing_behind(world: World) -> None:
    """Neither side of a half-made connection is told of one that cannot be."""
    world.listen()
    events: list[str] = []
    world.network.dial(
        world.client, "10.0.0.2", PORT, hello="", on_refused=lambda: events.append("refused"),
        on_open=lambda *_: events.append("opened"),
    )  # fmt: skip
    world.kernel.run(until_ns=LATENCY_NS)
    world.kernel.crash(world.client)
    world.pass_time()
    assert (events, world.accepted) == ([], [])


def test_sender_stops_when_the_reader_does_not_read() -> None:
    """Beyond the window an endpoint is not writable until the other end acknowledges."""
    world = World(window_bytes=10)
    world.listen()
    connection = world.connect()
    told: list[str] = []
    connection.on_writable = lambda: told.append("writable")
    unread: list[Any] = []
    world.accepted[0].on_message = unread.append
    send(connection, "12345678", "90")
    world.pass_time()
    assert (connection.writable, told) == (False, [])
    world.accepted[0].acknowledge(unread[0])
    assert (connection.writable, told) == (True, ["writable"])


# ----------------------------------------------------------------- perturbed


def interleaving(seed: int) -> list[str]:
    """What arrives when two clients send five messages each, at the same instants."""
    world = World(seed, perturb=True)
    world.listen()
    connections = {"a": world.connect(), "b": world.connect(Process(Node("p1", "10.0.0.3"), "x"))}

    def sender(name: str) -> Callable[[], None]:
        def body() -> None:
            for i in range(5):
                send(connections[name], f"{name}{i}")
                world.kernel.sleep(1_000 if i % 2 else 0)

        return body

    for name in connections:
        world.kernel.spawn(world.client, sender(name), name=name)
    world.pass_time()
    return world.texts


def test_perturbation_keeps_the_order_of_each_connection_only() -> None:
    """Over 50 seeds each connection keeps its order, while the two interleave differently."""
    runs = [interleaving(seed) for seed in range(50)]
    for texts in runs:
        for name in "ab":
            assert [t for t in texts if t[0] == name] == [f"{name}{i}" for i in range(5)]
    assert len({tuple(texts) for texts in runs}) > 10
    assert interleaving(7) == runs[7]
