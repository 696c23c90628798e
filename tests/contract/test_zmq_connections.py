"""Connections and closing: programs that must behave alike on pyzmq and on its facade."""

from __future__ import annotations

from typing import Any

import pytest
from zmq_arms import LOCAL, NEVER_MS, Arm, Bench, errno_of, run


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


def test_termination_waits_for_what_lingers(arm: Arm) -> None:
    """term() returns when somebody has taken the last message, however long that takes."""

    def program(bench: Bench) -> Any:
        port = bench.free_port()
        context = bench.zmq.Context()
        push = context.socket(bench.zmq.PUSH)
        push.connect(f"{LOCAL}:{port}")
        push.send(b"kept")
        push.close(linger=-1)
        pull = bench.socket("PULL")
        pull.bind(f"{LOCAL}:{port}")
        context.term()
        return context.closed, pull.recv()

    assert run(arm, program) == (True, b"kept")


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
        errno_of(lambda: push.send(b"x", bench.zmq.NOBLOCK))  # may have noticed already
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
