"""Programs that must behave alike on pyzmq and on its facade."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from zmq_arms import FacadeArm, RealArm, arm_named

Arm = RealArm | FacadeArm
LOCAL = "tcp://127.0.0.1"
SOON_MS = 5_000  # for what must happen
NEVER_MS = 150  # for what must not happen


@pytest.fixture(params=["real", "facade", "perturbed-facade"])
def arm(request: pytest.FixtureRequest) -> Iterator[Arm]:
    with arm_named(request.param) as arm:
        yield arm


class Bench:
    """One context whose sockets neither hang nor outlive the test."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.zmq = arm.zmq
        self.context = arm.zmq.Context()

    def socket(self, kind: str, **options: Any) -> Any:
        socket = self.context.socket(getattr(self.zmq, kind))
        socket.RCVTIMEO = socket.SNDTIMEO = SOON_MS
        socket.LINGER = 0
        for name, value in options.items():
            setattr(socket, name, value)
        return socket

    def bound(self, kind: str, **options: Any) -> tuple[Any, int]:
        socket = self.socket(kind, **options)
        return socket, socket.bind_to_random_port(LOCAL)

    def connected(self, kind: str, port: int, **options: Any) -> Any:
        socket = self.socket(kind, **options)
        socket.connect(f"{LOCAL}:{port}")
        return socket

    def pair(self, bound: str, connected: str) -> tuple[Any, Any]:
        one, port = self.bound(bound)
        return one, self.connected(connected, port)

    def free_port(self) -> int:
        return self.arm.free_port()

    def silent(self, socket: Any) -> bool:
        return socket.poll(NEVER_MS) == 0


def run(arm: Arm, program: Any) -> Any:
    """Run ``program(bench)`` in a thread of its own; its result or its exception."""

    def body() -> Any:
        bench = Bench(arm)
        try:
            return program(bench)
        finally:
            bench.context.destroy(linger=0)

    (result,) = arm.run(body)
    if isinstance(result, Exception):
        raise result
    return result


def errno_of(call: Any) -> str | None:
    """Name of the zmq error of a call, or the text of its TypeError."""
    try:
        call()
    except zmq.ZMQError as error:
        return errno.errorcode.get(error.errno) or zmq.Errno(error.errno).name
    except TypeError as error:
        return str(error)
    return None


def test_request_and_reply(arm: Arm) -> None:
    """REQ and REP see each other's bodies without an envelope."""

    def program(bench: Bench) -> Any:
        rep, req = bench.pair("REP", "REQ")
        req.send_multipart([b"do", b"it"])
        asked = rep.recv_multipart()
        rep.send_string("done")
        return asked, req.recv_string()

    assert run(arm, program) == ([b"do", b"it"], "done")


def test_req_and_rep_alternate_strictly(arm: Arm) -> None:
    """Out of turn, sending and receiving fail with EFSM and change nothing."""

    def program(bench: Bench) -> Any:
        rep, req = bench.pair("REP", "REQ")
        seen = [errno_of(req.recv), errno_of(lambda: rep.send(b""))]
        req.send(b"1")
        seen.append(errno_of(lambda: req.send(b"2")))
        rep.recv()
        seen.append(errno_of(rep.recv))
        rep.send(b"a")
        return seen, req.recv()

    assert run(arm, program) == (["EFSM"] * 4, b"a")


def test_poll_follows_the_state_of_req_and_rep(arm: Arm) -> None:
    """Only what the state allows is reported as possible."""

    def program(bench: Bench) -> Any:
        rep, req = bench.pair("REP", "REQ")
        both = bench.zmq.POLLIN | bench.zmq.POLLOUT
        seen = [req.poll(SOON_MS, both), rep.poll(0, both)]
        req.send(b"")
        seen += [req.poll(0, both), rep.poll(SOON_MS, both)]
        rep.recv()
        seen.append(rep.poll(0, both))
        return seen

    assert run(arm, program) == [2, 0, 0, 1, 2]


def test_router_prefixes_the_routing_id(arm: Arm) -> None:
    """A ROUTER gets the sender's id in front, and answers by it."""

    def program(bench: Bench) -> Any:
        router, port = bench.bound("ROUTER")
        dealer = bench.connected("DEALER", port, IDENTITY=b"decode-0")
        dealer.send(b"hello")
        got = router.recv_multipart()
        router.send_multipart([got[0], b"", b"meta"])
        return got, dealer.recv_multipart()

    assert run(arm, program) == ([b"decode-0", b"hello"], [b"", b"meta"])


def test_anonymous_peers_get_ids_of_five_bytes(arm: Arm) -> None:
    """Ids that ROUTER makes up begin with a zero byte and differ."""

    def program(bench: Bench) -> Any:
        router, port = bench.bound("ROUTER")
        ids = []
        for _ in range(2):
            dealer = bench.connected("DEALER", port)
            dealer.send(b"x")
            ids.append(router.recv_multipart()[0])
        return [(len(i), i[:1]) for i in ids], ids[0] != ids[1]

    assert run(arm, program) == ([(5, b"\0")] * 2, True)


def test_router_drops_for_unknown_ids_unless_mandatory(arm: Arm) -> None:
    """Silence by default, EHOSTUNREACH with ROUTER_MANDATORY, and no message either way."""

    def program(bench: Bench) -> Any:
        router, dealer = bench.pair("ROUTER", "DEALER")
        dealer.send(b"x")
        known = router.recv_multipart()[0]
        router.send_multipart([b"nobody", b"lost"])
        router.send(known)  # an id without a message
        router.setsockopt(bench.zmq.ROUTER_MANDATORY, 1)
        code = errno_of(lambda: router.send_multipart([b"nobody", b"lost"]))
        router.send_multipart([known, b"kept"])
        return code, dealer.recv_multipart(), bench.silent(dealer)

    assert run(arm, program) == ("EHOSTUNREACH", [b"kept"], True)


@pytest.mark.parametrize("handover", [0, 1])
def test_second_peer_with_an_id_in_use(arm: Arm, handover: int) -> None:
    """It is ignored, or takes over with ROUTER_HANDOVER."""

    def program(bench: Bench) -> Any:
        router, port = bench.bound("ROUTER", ROUTER_HANDOVER=handover)
        first = bench.connected("DEALER", port, IDENTITY=b"x")
        first.send(b"first")
        got = [router.recv_multipart()]
        second = bench.connected("DEALER", port, IDENTITY=b"x")
        second.send(b"second")
        if router.poll(SOON_MS if handover else NEVER_MS):
            got.append(router.recv_multipart())
        router.send_multipart([b"x", b"answer"])
        winner, loser = (second, first) if handover else (first, second)
        return got, winner.recv(), bench.silent(loser)

    got = [[b"x", b"first"], [b"x", b"second"]][: 1 + handover]
    assert run(arm, program) == (got, b"answer", True)


def test_connecting_before_the_listener_exists(arm: Arm) -> None:
    """What is sent meanwhile arrives when somebody binds, in order."""

    def program(bench: Bench) -> Any:
        port = bench.free_port()
        push = bench.connected("PUSH", port)
        for i in range(5):
            push.send_string(str(i))
        pull = bench.socket("PULL")
        pull.bind(f"tcp://*:{port}")
        return [pull.recv_string() for _ in range(5)]

    assert run(arm, program) == list("01234")


@pytest.mark.parametrize("kind", ["DEALER", "PUSH"])
def test_high_water_mark_counts_unconnected_messages(arm: Arm, kind: str) -> None:
    """SNDHWM messages are queued for a peer that does not exist; then sending blocks."""

    def program(bench: Bench) -> Any:
        socket = bench.connected(kind, bench.free_port(), SNDHWM=3)
        count = 0
        while count < 10 and errno_of(lambda: socket.send(b"x", bench.zmq.NOBLOCK)) is None:
            count += 1
        socket.SNDTIMEO = 20
        return count, errno_of(lambda: socket.send(b"x"))

    assert run(arm, program) == (3, "EAGAIN")


def test_blocked_sender_goes_on_when_there_is_room(arm: Arm) -> None:
    """A sender at its high-water mark waits until somebody binds and reads."""

    def program(bench: Bench) -> Any:
        port = bench.free_port()
        push = bench.connected("PUSH", port, SNDHWM=2)
        for i in range(2):
            push.send_string(str(i), bench.zmq.NOBLOCK)
        full = push.poll(0, bench.zmq.POLLOUT)
        pull = bench.socket("PULL")
        pull.bind(f"{LOCAL}:{port}")
        push.send(b"2")
        return full, [pull.recv() for _ in range(3)]

    assert run(arm, program) == (0, [b"0", b"1", b"2"])


def test_immediate_queues_only_for_completed_connections(arm: Arm) -> None:
    """With IMMEDIATE there is nobody to send to before the connection exists."""

    def program(bench: Bench) -> Any:
        port = bench.free_port()
        push = bench.socket("PUSH", IMMEDIATE=1)
        push.connect(f"{LOCAL}:{port}")
        early = errno_of(lambda: push.send(b"x", bench.zmq.NOBLOCK))
        pull = bench.socket("PULL")
        pull.bind(f"{LOCAL}:{port}")
        push.send(b"later")
        return early, pull.recv()

    assert run(arm, program) == ("EAGAIN", b"later")


def test_subscriptions_filter_by_prefix(arm: Arm) -> None:
    """A subscriber sees what begins with one of its topics, from when that is known."""

    def program(bench: Bench) -> Any:
        pub, sub = bench.pair("PUB", "SUB")
        pub.send(b"nobody listens")
        sub.subscribe("a")
        sub.setsockopt(bench.zmq.SUBSCRIBE, b"bc")
        while not sub.poll(10):
            pub.send(b"bc-sync")
        for text in ("a1", "b1", "bc1", "c", "a2"):
            pub.send_multipart([text.encode(), b"body"])
        seen = []
        while seen[-1:] != [[b"a2", b"body"]]:
            seen.append(sub.recv_multipart())
        return [frames for frames in seen if frames != [b"bc-sync"]]

    assert run(arm, program) == [[b"a1", b"body"], [b"bc1", b"body"], [b"a2", b"body"]]


def test_unsubscribing_ends_delivery(arm: Arm) -> None:
    """After the last unsubscription of a topic nothing more comes of it."""

    def program(bench: Bench) -> Any:
        pub, sub = bench.pair("PUB", "SUB")
        for topic in (b"a", b"a", b"z"):
            sub.subscribe(topic)
        while not sub.poll(10):
            pub.send(b"z")
        sub.unsubscribe(b"a")
        pub.send(b"a1")
        while sub.recv() != b"a1":
            pass
        sub.unsubscribe(b"a")
        pub.send(b"a2")
        pub.send(b"z-end")
        return sub.recv()

    assert run(arm, program) == b"z-end"


def test_publisher_never_blocks(arm: Arm) -> None:
    """Without subscribers, whatever the time-outs and marks are, sending succeeds."""

    def program(bench: Bench) -> Any:
        pub, _port = bench.bound("PUB", SNDHWM=1)
        for _ in range(50):
            pub.send(b"x", bench.zmq.NOBLOCK)
        return pub.poll(0, bench.zmq.POLLOUT)

    assert run(arm, program) == 2


def test_poller_reports_the_ready_sockets(arm: Arm) -> None:
    """Each registered socket with the events that were asked for and have happened."""

    def program(bench: Bench) -> Any:
        pull, port = bench.bound("PULL")
        push = bench.connected("PUSH", port)
        other, _ = bench.bound("PULL")
        poller = bench.zmq.Poller()
        poller.register(pull, bench.zmq.POLLIN)
        poller.register(other, bench.zmq.POLLIN)
        nothing = poller.poll(20)
        push.send(b"x")
        ready = dict(poller.poll(SOON_MS)) == {pull: bench.zmq.POLLIN}
        pull.recv()
        poller.unregister(pull)
        push.send(b"y")
        return nothing, ready, poller.poll(NEVER_MS), pull.poll(SOON_MS)

    assert run(arm, program) == ([], True, [], 1)


def test_receive_time_out_raises_again(arm: Arm) -> None:
    """RCVTIMEO and NOBLOCK end in the same exception, which is a ZMQError."""

    def program(bench: Bench) -> Any:
        pull, _port = bench.bound("PULL", RCVTIMEO=20)
        with pytest.raises(bench.zmq.Again):
            pull.recv()
        with pytest.raises(bench.zmq.ZMQError):
            pull.recv(bench.zmq.NOBLOCK)
        return True

    assert run(arm, program)


def test_reconnecting_after_the_listener_came_back(arm: Arm) -> None:
    """A connecting socket finds the next listener by itself; its made-up id is a new one."""

    def program(bench: Bench) -> Any:
        router, port = bench.bound("ROUTER")
        dealer = bench.connected("DEALER", port)
        dealer.send(b"1")
        first = router.recv_multipart()
        router.close()
        router = bench.socket("ROUTER")
        while errno_of(lambda: router.bind(f"{LOCAL}:{port}")) == "EADDRINUSE":
            bench.silent(dealer)  # libzmq closes in the background
        while not router.poll(NEVER_MS):
            dealer.send(b"2")  # lost as long as the old connection is not known to be dead
        second = router.recv_multipart()
        router.send_multipart([second[0], b"back"])
        return first[1], second[1], dealer.recv()

    assert run(arm, program) == (b"1", b"2", b"back")


def test_answer_to_a_peer_that_has_gone_is_lost(arm: Arm) -> None:
    """A ROUTER forgets a peer whose connection has gone, but not what it had said."""

    def program(bench: Bench) -> Any:
        router, port = bench.bound("ROUTER", ROUTER_MANDATORY=1)
        dealer = bench.connected("DEALER", port, IDENTITY=b"x")
        for i in range(3):
            dealer.send_string(str(i))
        said = [router.recv_multipart()[1]]
        dealer.close(linger=1_000)
        said += [router.recv_multipart()[1] for _ in range(2)]
        while errno_of(lambda: router.send_multipart([b"x", b"?"])) is None:
            bench.silent(router)
        return said, errno_of(lambda: router.send_multipart([b"x", b"?"]))

    assert run(arm, program) == ([b"0", b"1", b"2"], "EHOSTUNREACH")


def test_closed_socket_still_sends_while_it_lingers(arm: Arm) -> None:
    """A message for a listener that comes after close() arrives, if LINGER allows."""

    def program(bench: Bench) -> Any:
        port = bench.free_port()
        push = bench.connected("PUSH", port)
        push.send(b"last words")
        push.close(linger=10_000)
        pull = bench.socket("PULL")
        pull.bind(f"{LOCAL}:{port}")
        return pull.recv()

    assert run(arm, program) == b"last words"


@pytest.mark.parametrize("linger_ms", [0, 50])
def test_termination_waits_no_longer_than_linger(arm: Arm, linger_ms: int) -> None:
    """What nobody takes is discarded, and term() returns."""

    def program(bench: Bench) -> Any:
        context = bench.zmq.Context()
        push = context.socket(bench.zmq.PUSH)
        push.connect(f"{LOCAL}:{bench.free_port()}")
        push.send(b"for nobody")
        push.close(linger=linger_ms)
        context.term()
        return context.closed, push.closed, errno_of(lambda: context.socket(bench.zmq.PUSH))

    assert run(arm, program) == (True, True, "ENOTSUP")


def test_termination_wakes_blocked_receivers(arm: Arm) -> None:
    """A thread in recv() gets ContextTerminated, and term() waits for its close()."""
    shared: dict[str, Any] = {}

    def receiver() -> Any:
        context = arm.zmq.Context()
        socket = context.socket(arm.zmq.PULL)
        shared["context"] = context
        seen: list[Any] = []
        for call in (socket.recv, lambda: socket.send(b""), lambda: socket.LINGER):
            try:
                call()
            except arm.zmq.ContextTerminated:
                seen.append("terminated")
        shared["closing"] = True
        socket.close()
        return seen

    def terminator() -> Any:
        while "context" not in shared:
            _nap(arm)
        _nap(arm)
        shared["context"].term()
        return shared["closing"], shared["context"].closed

    assert arm.run(receiver, terminator) == [["terminated"] * 3, (True, True)]


def _nap(arm: Arm) -> None:
    """Let other threads run for a moment of the arm's own time."""
    context = arm.zmq.Context()
    socket = context.socket(arm.zmq.PULL)
    socket.poll(5)
    context.destroy()


def test_malformed_requests_are_skipped(arm: Arm) -> None:
    """A REP ignores messages without an empty delimiter before a body."""

    def program(bench: Bench) -> Any:
        rep, dealer = bench.pair("REP", "DEALER")
        for frames in ([b"no delimiter"], [b"a", b"b"], [b"a", b""], [b""]):
            dealer.send_multipart(frames)
        dealer.send_multipart([b"hop", b"", b"body"])
        asked = rep.recv_multipart()
        rep.send(b"ok")
        return asked, dealer.recv_multipart(), bench.silent(rep)

    assert run(arm, program) == ([b"body"], [b"hop", b"", b"ok"], True)


def test_foreign_protocol_disturbs_nobody(arm: Arm) -> None:
    """A connection that does not speak zmq yields no message and harms no other."""

    def program(bench: Bench) -> Any:
        router, port = bench.bound("ROUTER")
        dealer = bench.connected("DEALER", port, IDENTITY=b"x")
        arm.send_garbage(port)
        dealer.send(b"fine")
        return router.recv_multipart(), bench.silent(router)

    assert run(arm, program) == ([b"x", b"fine"], True)


def test_socket_types_that_do_not_fit_exchange_nothing(arm: Arm) -> None:
    """A PUSH that connects to a ROUTER is not heard."""

    def program(bench: Bench) -> Any:
        router, push = bench.pair("ROUTER", "PUSH")
        push.send(b"x")
        return bench.silent(router)

    assert run(arm, program)


def test_addresses_in_use_and_bad_addresses(arm: Arm) -> None:
    """bind() and connect() say what is wrong with an address."""

    def program(bench: Bench) -> Any:
        _taken, port = bench.bound("PULL")
        pull = bench.socket("PULL")
        binds = (
            f"{LOCAL}:{port}", f"tcp://*:{port}", "tcp://10.99.99.99:5555", LOCAL,
            f"{LOCAL}:x", "127.0.0.1:5555", "foo://127.0.0.1:5555", "tcp://no.such.host:1",
        )  # fmt: skip
        connects = ("tcp://*:5555", LOCAL, "tcp://no.such.host:1")
        return (
            [errno_of(lambda a=a: pull.bind(a)) for a in binds],
            [errno_of(lambda a=a: pull.connect(a)) for a in connects],
            errno_of(lambda: pull.unbind(f"{LOCAL}:1")),
        )

    binds, connects, unbind = run(arm, program)
    assert binds == [
        "EADDRINUSE", "EADDRINUSE", "EADDRNOTAVAIL", "EINVAL",
        "EINVAL", "EINVAL", "EPROTONOSUPPORT", "ENODEV",
    ]  # fmt: skip
    assert connects == ["EINVAL", "EINVAL", None]
    assert unbind == "ENOENT"


def test_last_endpoint_names_the_chosen_port(arm: Arm) -> None:
    """Binding to port 0 or * takes a free port, which LAST_ENDPOINT tells."""

    def program(bench: Bench) -> Any:
        seen = []
        for address in ("tcp://*:0", f"{LOCAL}:*"):
            socket = bench.socket("PULL")
            socket.bind(address)
            host, _, port = socket.last_endpoint.decode().rpartition(":")
            seen.append((host, int(port) > 1023))
        return seen

    assert run(arm, program) == [("tcp://0.0.0.0", True), (LOCAL, True)]


def test_options_and_their_errors(arm: Arm) -> None:
    """Defaults, attribute style, types and limits are pyzmq's."""

    def program(bench: Bench) -> Any:
        zmq = bench.zmq
        socket = bench.context.socket(zmq.DEALER)
        names = ("LINGER", "SNDHWM", "RCVHWM", "RCVTIMEO", "SNDTIMEO", "IMMEDIATE", "IPV6",
                 "IDENTITY", "RECONNECT_IVL", "SNDBUF", "RCVMORE", "TYPE", "LAST_ENDPOINT",
                 "TCP_KEEPALIVE", "EVENTS")  # fmt: skip
        defaults = [socket.getsockopt(getattr(zmq, name)) for name in names]
        socket.linger, socket.identity = 5, b"me"
        attempts = (
            (zmq.SUBSCRIBE, b"a"), (zmq.ROUTER_MANDATORY, 1), (zmq.LINGER, b"a"),
            (zmq.LINGER, -2), (zmq.SNDHWM, -1), (zmq.RCVTIMEO, 2.5), (zmq.IDENTITY, "me"),
            (zmq.IDENTITY, b""), (zmq.IDENTITY, b"x" * 256),
        )  # fmt: skip
        errors = [errno_of(lambda o=o, v=v: socket.setsockopt(o, v)) for o, v in attempts]
        return defaults, (socket.LINGER, socket.getsockopt(zmq.ROUTING_ID)), errors

    defaults, changed, errors = run(arm, program)
    assert defaults == [-1, 1000, 1000, -1, -1, 0, 0, b"", 100, -1, 0, 5, b"", -1, 0]
    assert changed == (5, b"me")
    assert errors == [
        "EINVAL", "EINVAL", "expected int, got: b'a'", "EINVAL", "EINVAL",
        "expected int, got: 2.5", "unicode not allowed, use setsockopt_string",
        "EINVAL", "EINVAL",
    ]  # fmt: skip


def test_directions_that_a_type_does_not_have(arm: Arm) -> None:
    """Receiving on PUSH and PUB and sending on PULL and SUB is ENOTSUP."""

    def program(bench: Bench) -> Any:
        wrong = [bench.socket(kind).recv for kind in ("PUSH", "PUB")]
        deaf = [bench.socket(kind) for kind in ("PULL", "SUB")]
        wrong += [lambda s=s: s.send(b"") for s in deaf]
        closed = bench.socket("PULL")
        closed.close()
        return [errno_of(call) for call in (*wrong, closed.recv, lambda: closed.poll(0))]

    assert run(arm, program) == ["ENOTSUP"] * 4 + ["ENOTSOCK", "ENOTSUP"]


def test_what_is_no_message_is_a_type_error(arm: Arm) -> None:
    """Text and numbers are refused; anything with a buffer is sent."""

    def program(bench: Bench) -> Any:
        pull, push = bench.pair("PULL", "PUSH")
        errors = [errno_of(lambda v=v: push.send(v)) for v in ("text", 3)]
        push.send_multipart([bytearray(b"a"), memoryview(b"b"), b""])
        push.send_json({"k": [1, None]})
        parts = [pull.recv()]
        while pull.RCVMORE:
            parts.append(pull.recv())
        return errors, parts, pull.recv_json()

    errors, parts, value = run(arm, program)
    assert errors == [
        "unicode not allowed, use send_string",
        "a bytes-like object is required, not 'int'",
    ]
    assert (parts, value) == ([b"a", b"b", b""], {"k": [1, None]})


def test_push_takes_turns_and_pull_reads_fairly(arm: Arm) -> None:
    """Messages are dealt to the peers one by one."""

    def program(bench: Bench) -> Any:
        push = bench.socket("PUSH")
        pulls = []
        for _ in range(2):
            pull, port = bench.bound("PULL")
            push.connect(f"{LOCAL}:{port}")
            pulls.append(pull)
        for i in range(4):
            push.send_string(str(i))
        return [[pull.recv_string() for _ in range(2)] for pull in pulls]

    assert run(arm, program) == [["0", "2"], ["1", "3"]]


def test_pair_talks_both_ways(arm: Arm) -> None:
    """PAIR has no envelope and no order of turns."""

    def program(bench: Bench) -> Any:
        one, two = bench.pair("PAIR", "PAIR")
        two.send(b"a")
        two.send(b"b")
        seen = [one.recv(), one.recv()]
        one.send(b"c")
        return seen, two.recv()

    assert run(arm, program) == ([b"a", b"b"], b"c")


def test_inproc_connects_before_and_after_binding(arm: Arm) -> None:
    """Inside a context names work like addresses, and messages are there at once."""

    def program(bench: Bench) -> Any:
        early = bench.socket("DEALER")
        early.connect("inproc://x")
        early.send(b"early")
        router = bench.socket("ROUTER")
        router.bind("inproc://x")
        late = bench.socket("REQ", IDENTITY=b"late")
        late.connect("inproc://x")
        late.send(b"late")
        seen = [router.recv_multipart(bench.zmq.NOBLOCK)[1:] for _ in range(2)]
        router.send_multipart([b"late", b"", b"hi"])
        again = bench.socket("ROUTER")
        return seen, late.recv(), errno_of(lambda: again.bind("inproc://x"))

    assert run(arm, program) == ([[b"early"], [b"", b"late"]], b"hi", "EADDRINUSE")


def test_disconnecting_ends_the_exchange(arm: Arm) -> None:
    """After disconnect() there is nobody to send to; a second one finds nothing."""

    def program(bench: Bench) -> Any:
        pull, port = bench.bound("PULL")
        push = bench.connected("PUSH", port)
        push.send(b"x")
        got = pull.recv()
        push.disconnect(f"{LOCAL}:{port}")
        push.SNDTIMEO = 20
        gone = errno_of(lambda: push.send(b"y"))
        return got, gone, errno_of(lambda: push.disconnect(f"{LOCAL}:{port}"))

    assert run(arm, program) == (b"x", "EAGAIN", "ENOENT")


def test_contexts_hand_options_to_their_sockets(arm: Arm) -> None:
    """Options set on a context are defaults of the sockets it makes afterwards."""

    def program(bench: Bench) -> Any:
        context = bench.zmq.Context()
        context.linger = 7
        context.setsockopt(bench.zmq.SUBSCRIBE, b"")  # fits SUB only, and is skipped elsewhere
        with context, context.socket(bench.zmq.DEALER) as socket:
            value = socket.linger
        return value, socket.closed, context.closed

    assert run(arm, program) == (7, True, True)


def test_instance_is_one_until_it_is_terminated(arm: Arm) -> None:
    """Context.instance() is the same for the process, and a new one after term()."""

    def program(bench: Bench) -> Any:
        one = bench.zmq.Context.instance()
        same = bench.zmq.Context.instance() is one
        one.destroy()
        other = bench.zmq.Context.instance()
        fresh = other is not one and not other.closed
        other.destroy()
        return same, fresh

    assert run(arm, program) == (True, True)
