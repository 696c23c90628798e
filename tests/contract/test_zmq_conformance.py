"""The socket types: programs that must behave alike on pyzmq and on its facade."""

from __future__ import annotations

from typing import Any

import pytest
from zmq_arms import LOCAL, NEVER_MS, SOON_MS, Arm, Bench, errno_of, run


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


def test_options_and_their_errors(arm: Arm) -> None:
    """Defaults, attribute style, types and limits are pyzmq's."""

    def program(bench: Bench) -> Any:
        zmq = bench.zmq
        socket = bench.context.socket(zmq.DEALER)
        names = ("LINGER", "SNDHWM", "RCVHWM", "RCVTIMEO", "SNDTIMEO", "IMMEDIATE", "IPV6",
                 "IDENTITY", "RECONNECT_IVL", "SNDBUF", "RCVMORE", "TYPE", "LAST_ENDPOINT",
                 "TCP_KEEPALIVE", "TCP_MAXRT", "MAXMSGSIZE", "EVENTS")  # fmt: skip
        defaults = [socket.getsockopt(getattr(zmq, name)) for name in names]
        socket.linger, socket.identity = 5, b"me"
        attempts = (
            (zmq.SUBSCRIBE, b"a"), (zmq.ROUTER_MANDATORY, 1), (zmq.LINGER, b"a"),
            (zmq.LINGER, -2), (zmq.SNDHWM, -1), (zmq.RCVTIMEO, 2.5), (zmq.IDENTITY, "me"),
            (zmq.IDENTITY, b""), (zmq.IDENTITY, b"x" * 256), (zmq.TCP_MAXRT, -1),
        )  # fmt: skip
        errors = [errno_of(lambda o=o, v=v: socket.setsockopt(o, v)) for o, v in attempts]
        return defaults, (socket.LINGER, socket.getsockopt(zmq.ROUTING_ID)), errors

    defaults, changed, errors = run(arm, program)
    assert defaults == [-1, 1000, 1000, -1, -1, 0, 0, b"", 100, -1, 0, 5, b"", -1, 0, -1, 0]
    assert changed == (5, b"me")
    assert errors == [
        "EINVAL", "EINVAL", "expected int, got: b'a'", "EINVAL", "EINVAL",
        "expected int, got: 2.5", "unicode not allowed, use setsockopt_string",
        "EINVAL", "EINVAL", "EINVAL",
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


def test_pair_refuses_a_second_peer(arm: Arm) -> None:
    """While it has one peer, a PAIR does not hear another."""

    def program(bench: Bench) -> Any:
        one, port = bench.bound("PAIR")
        first = bench.connected("PAIR", port)
        first.send(b"first")
        seen = [one.recv()]
        second = bench.connected("PAIR", port)
        second.send(b"second")
        quiet = bench.silent(one)
        first.send(b"again")
        return seen, quiet, one.recv()

    assert run(arm, program) == ([b"first"], True, b"again")


def test_req_takes_the_answer_of_the_peer_it_asked(arm: Arm) -> None:
    """What others say meanwhile makes poll() return, but recv() skips it."""

    def program(bench: Bench) -> Any:
        asked, port_a = bench.bound("ROUTER", ROUTER_MANDATORY=1)
        other, port_b = bench.bound("ROUTER", ROUTER_MANDATORY=1)
        req = bench.connected("REQ", port_a, IDENTITY=b"q")
        req.connect(f"{LOCAL}:{port_b}")
        req.send(b"?")
        got = asked.recv_multipart()
        while errno_of(lambda: other.send_multipart([b"q", b"", b"forged"])):
            bench.silent(other)  # not connected yet
        polled = req.poll(SOON_MS)
        skipped = errno_of(lambda: req.recv(bench.zmq.NOBLOCK))
        asked.send_multipart([b"q", b"", b"true"])
        return got, polled, skipped, req.recv()

    assert run(arm, program) == ([b"q", b"", b"?"], 1, "EAGAIN", b"true")


def test_what_is_connected_only_once_ends_with_its_connection(arm: Arm) -> None:
    """A negative RECONNECT_IVL: a message is refused then, and nobody who listens later hears any;
    after a refusal it is taken, and leads nowhere. Another connection may be made."""

    def program(bench: Bench) -> Any:
        port = bench.free_port()
        early = bench.connected("DEALER", port, RECONNECT_IVL=-1)
        early.send(b"to nobody")
        assert bench.silent(early)  # it is refused meanwhile
        first = bench.socket("ROUTER")
        first.bind(f"{LOCAL}:{port}")
        dealer = bench.connected("DEALER", port, RECONNECT_IVL=-1)
        dealer.send(b"hello")
        heard = [first.recv_multipart()]
        first.send_multipart([heard[0][0], b"unread"])
        dealer.poll(SOON_MS)
        first.close()
        while dealer.poll(0, bench.zmq.POLLOUT):
            assert bench.silent(early)  # until the loss is known
        refused = errno_of(lambda: dealer.send(b"too late", bench.zmq.NOBLOCK))
        second = bench.socket("ROUTER")
        second.bind(f"{LOCAL}:{port}")
        silence = bench.silent(second), bench.silent(dealer)
        early.send(b"still to nobody")
        dealer.connect(f"{LOCAL}:{port}")
        dealer.send(b"again")
        return heard[0][1], refused, silence, second.recv_multipart()[1]

    assert run(arm, program) == (b"hello", "EAGAIN", (True, True), b"again")
