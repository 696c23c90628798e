"""A producer rank's answers to questions about what its blocks hold.

They take time, so they are made in the digester's thread, and the listener goes on.
"""

from __future__ import annotations

import threading
from functools import partial

import zmq

from connector.core.verification import Digest
from connector.digests import Digester
from connector.holds import HoldBook
from connector.logs import log
from connector.wire import Answer, Question, encode_answer

_MOST_WAITING = 64  # questions; one that is not taken is asked again


class DigestAnswers:
    """Takes questions from the listener's thread, and answers from another.

    Args:
        digester: of this rank.
        holds: of this rank.
        outbox: takes the frames of an answer, used by the digester's thread only.
    """

    def __init__(self, digester: Digester, holds: HoldBook, outbox: zmq.Socket[bytes]) -> None:
        self._digester = digester
        self._holds = holds
        self._outbox = outbox
        self._lock = threading.Lock()
        self._waiting: set[tuple[bytes, int]] = set()
        self._log = log.bind(role="producer", half="worker")

    def ask(self, identity: bytes, question: Question) -> None:
        """Take a question, unless it waits already or too many do.

        Args:
            identity: of the peer, for the answer.
            question: of the peer.

        Raises:
            MalformedPayload: it is about what there is not, or about too much.
        """
        self._digester.check(question.blocks)
        key = (identity, question.number)
        with self._lock:
            if key in self._waiting or len(self._waiting) >= _MOST_WAITING:
                return
            self._waiting.add(key)
        self._digester.run(partial(self._answer, identity, question))

    def _answer(self, identity: bytes, question: Question) -> None:
        try:
            answer = self._look(question)
            self._outbox.send_multipart((identity, b"", encode_answer(answer)))
        except Exception as error:
            self._log.exception("digests-failed", reason=repr(error))
        finally:
            with self._lock:
                self._waiting.discard((identity, question.number))

    def _look(self, question: Question) -> Answer:
        """Digests count only if the blocks were held from before they were read until after."""
        digests: tuple[Digest, ...] = ()
        is_held = self._holds.is_held(question.hold)
        if is_held:
            digests = self._digester.digests(question.blocks)
            is_held = self._holds.is_held(question.hold)
        return Answer(question.number, is_held, digests if is_held else ())

    def close(self) -> None:
        self._digester.close()
