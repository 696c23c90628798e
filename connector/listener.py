"""A producer rank's side channel: one thread that answers handshakes and questions,
and takes renewals and releases. What takes long to answer is passed on to another.

Nothing that arrives can end the thread: what cannot be understood is counted, logged and dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import zmq
from vllm.utils.network_utils import make_zmq_path

from connector import wire
from connector.core.errors import MalformedPayload
from connector.counters import Counters
from connector.digest_answers import DigestAnswers
from connector.digests import Digester
from connector.holds import HoldBook
from connector.logs import log
from connector.side_channel import open_context

MakeWelcome = Callable[[], tuple[bytes, bytes]]


class Listener:
    """Listens until closed.

    Args:
        handshake_port: of this rank.
        notify_port: of this rank.
        holds: that questions and releases are about.
        digester: of the caches that holds are about.
        make_welcome: the two frames that answer a handshake.
        counters: of this rank.

    Raises:
        OSError: a port is in use; the message names it.
    """

    def __init__(
        self,
        handshake_port: int,
        notify_port: int,
        holds: HoldBook,
        digester: Digester,
        make_welcome: MakeWelcome,
        counters: Counters,
    ) -> None:
        self._holds = holds
        self._make_welcome = make_welcome
        self._counters = counters
        self._log = log.bind(role="producer", half="worker")
        self._context = open_context()
        self._handshakes = self._bind(handshake_port)
        self._notices = self._bind(notify_port)
        self._closing, self._close = self._make_wire("close")
        self._answered, outbox = self._make_wire("digests")
        self._digests = DigestAnswers(digester, holds, outbox)
        self._thread = threading.Thread(target=self._run, daemon=True, name="hybrid-listener")
        self._thread.start()

    def close(self) -> None:
        self._digests.close()
        self._close.send(b"")
        self._thread.join(timeout=1)
        self._context.destroy(linger=0)

    # ---------------------------------------------------------------- internal

    def _make_wire(self, name: str) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        """Two ends of a wire within the process: what is sent into one wakes the thread."""
        ends = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
        ends[0].bind(f"inproc://{name}")
        ends[1].connect(f"inproc://{name}")
        return ends

    def _bind(self, port: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        try:
            socket.bind(make_zmq_path("tcp", "*", port))
        except zmq.ZMQError as error:
            raise OSError(f"cannot listen on port {port}: {error}; choose another port") from error
        return socket

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._handshakes, zmq.POLLIN)
        poller.register(self._notices, zmq.POLLIN)
        poller.register(self._answered, zmq.POLLIN)
        poller.register(self._closing, zmq.POLLIN)
        while True:
            for socket, _events in poller.poll():
                if socket is self._closing:
                    return
                self._take(socket)

    def _take(self, socket: zmq.Socket[bytes]) -> None:
        """An error here must not end the thread, without which nobody would be answered."""
        try:
            self._handle(socket, socket.recv_multipart())
        except zmq.ZMQError as error:
            self._log.warning("answer-not-sent", reason=str(error))
        except Exception as error:
            self._counters.add("malformed_messages")
            self._log.warning("message-dropped", reason=str(error) or repr(error))

    def _handle(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if socket is self._answered:
            self._handshakes.send_multipart(frames)
            return
        identity, *rest = frames
        body = rest[1:] if rest[:1] == [b""] else rest  # REQ sockets put an empty frame first
        if len(body) != 1:
            raise MalformedPayload(f"a message of {len(body)} frames; expected one")
        if socket is self._notices:
            self._release(body[0])
        elif body[0] == wire.GET_META:
            for frame in self._make_welcome():
                socket.send_multipart((identity, b"", frame))
        elif (renewed := wire.decode_renewal(body[0])) is not None:
            passed_on, refused = self._holds.renew(renewed)
            self._counters.add("renewals", passed_on)
            self._counters.add("unknown_renewals", refused)
        else:
            self._answer(identity, wire.decode_question(body[0]))

    def _answer(self, identity: bytes, question: wire.Question) -> None:
        if question.blocks:
            self._digests.ask(identity, question)
            return
        answer = wire.Answer(question.number, self._holds.is_held(question.hold))
        self._handshakes.send_multipart((identity, b"", wire.encode_answer(answer)))

    def _release(self, message: bytes) -> None:
        release = wire.decode_release(message)
        is_known = self._holds.release(
            release.transfer_id, release.hold, release.reader, release.consumer_size
        )
        self._counters.add("releases" if is_known else "unknown_releases")
