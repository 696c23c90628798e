"""What a consumer rank and a producer rank say to each other: handshakes, questions and renewals.

Used by the loader's thread alone. Nothing here waits: the loader calls again and again.
"""

from __future__ import annotations

from typing import Any

import zmq

from connector import wire
from connector.call import Call
from connector.core.errors import PeerMismatch


class Conversation:
    """With whatever engine listens at one address.

    A hello goes over a connection of its own and leaves the one that questions are asked on alone,
    which ends only when it is known to have gone, when another engine has answered, or when the
    same one has answered elsewhere after too long a silence. So an offer of an earlier start, or of
    another connector, disturbs nobody who talks with the present one.

    Args:
        context: for sockets.
        name: of the peer, for messages.
        path: of its handshake port.
        control_timeout_s: for one answer.
    """

    def __init__(
        self, context: zmq.Context[Any], name: str, path: str, control_timeout_s: float
    ) -> None:
        self._context = context
        self._name = name
        self._path = path
        self._control_timeout_s = control_timeout_s
        self._greeting: Call | None = None
        self._not_before = 0.0
        """When the next hello may be said."""
        self.call: Call | None = None
        """That questions are asked on; of a peer that can be asked."""
        self.heard: wire.Welcome | None = None
        """The latest welcome, and when the hello was said that it answers: then at the earliest
        was that engine there."""
        self._heard_at = 0.0
        self.hellos_answered = 0
        self._answers: dict[int, wire.Answer | None] = {}

    # --------------------------------------------------------------- handshakes

    def greet(self, now: float) -> None:
        """Go on with a hello, which is said again every control time-out, until `heard` is new.

        Raises:
            ConnectorError: what has come is no welcome.
        """
        greeting = self._greeting
        if greeting is not None:
            try:
                welcome = greeting.read_welcome()
            except Exception:
                self._hang_up()
                raise
            if welcome is not None:
                self._greeting = None
                self.heard, self._heard_at = welcome, greeting.began
                self.hellos_answered += 1
                self._go_on_with(greeting)
                return
        if now >= self._not_before:
            self._hang_up()
            self._not_before = now + self._control_timeout_s
            self._greeting = Call(self._context, self._path, now)

    def _go_on_with(self, call: Call) -> None:
        """Unless that is of no use: upstream cannot be asked, and answers may be under way on the
        connection that there is."""
        if call.incarnation is not None and self._talks_with(call.incarnation):
            assert self.call is not None
            if not self.call.is_doubted:
                call.close()
                return
        self._end_call()
        if call.incarnation is None:
            call.close()
        else:
            self.call = call

    def _end_call(self) -> None:
        if self.call is not None:
            self.call.close()
            self.call = None

    def is_with(self, incarnation: str | None, since: float) -> bool:
        """Whether the engine that was heard is the one that made an offer; if not, it has to be
        greeted again.

        Args:
            incarnation: that the offer tells; none of another connector, which may have come to the
                address after the engine that was heard.
            since: when the offer was taken up.

        Raises:
            PeerMismatch: it was greeted since, and is another one.
        """
        assert self.heard is not None
        is_recent = self._heard_at >= since
        if incarnation == self.heard.incarnation or (incarnation is None and is_recent):
            return True
        if is_recent:
            raise PeerMismatch(
                f"{self._name} is not the engine that made the offer: it has started again"
            )
        return False

    def reach(self, now: float, incarnation: str, since: float) -> bool:
        """Go on until an engine can be asked questions; True when it can.

        Args:
            now: monotonic, in seconds.
            incarnation: that it must have.
            since: when that was wanted first.

        Raises:
            ConnectorError: it is another one by now, or its welcome cannot be read.
        """
        if not self._talks_with(incarnation):
            if self.heard is not None:
                self.is_with(incarnation, since)
            self.greet(now)
        return self._talks_with(incarnation)

    def _talks_with(self, incarnation: str) -> bool:
        return self.call is not None and self.call.incarnation == incarnation

    def start_over(self) -> None:
        """Greet before all else, with a hello that is said from now on."""
        self._hang_up()
        self._not_before = 0.0

    def _hang_up(self) -> None:
        if self._greeting is not None:
            self._greeting.close()
            self._greeting = None

    # ---------------------------------------------------------------- questions

    def ask(self, question: wire.Question) -> bool:
        """Ask the engine that was reached about a hold; `answer` tells, and `drop` stops waiting.

        Returns:
            Whether the question is on its way; else the engine has to be reached first.
        """
        self._answers.setdefault(question.number, None)
        return self._say(wire.encode_question(question))

    def extend_leases(self, incarnation: str, numbers: list[int]) -> bool:
        """Ask the engine that was reached for more time for some holds; it does not answer.

        Returns:
            Whether that is on its way; else the engine has to be reached first.
        """
        return self._say(wire.encode_renewal(incarnation, numbers))

    def _say(self, message: bytes) -> bool:
        """After a connection that has gone the next hello waits as after one that nobody answered,
        so a peer that always hangs up keeps nobody busy."""
        assert self.call is not None
        is_said = self.call.say(message)
        if not is_said:
            self._end_call()
        return is_said

    def doubt(self, call: Call | None, since: float) -> None:
        """Look for another connection to the engine, if nothing has come over that one since: it
        may lead nowhere, without anybody having said so."""
        if call is not None and call is self.call and call.heard_at <= since:
            call.is_doubted = True

    def receive(self, now: float) -> None:
        """Take what has arrived.

        Raises:
            ConnectorError: there is something else among it.
        """
        while self.call is not None and (answer := self.call.next_answer(now)) is not None:
            if answer.number in self._answers:  # else asked twice, or not waited for
                self._answers[answer.number] = answer
        if self.call is not None and self.call.is_doubted:
            self.greet(now)
        elif self._greeting is not None:
            self._greeting.receive()  # whether somebody still waits for it or not

    def answer(self, number: int) -> wire.Answer | None:
        """To a question; None if it is not there."""
        return self._answers.get(number)

    def drop(self, number: int) -> None:
        """Wait for no answer to a question any longer."""
        self._answers.pop(number, None)

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """What an answer may arrive on."""
        return [call.socket for call in (self._greeting, self.call) if call is not None]

    def rest(self) -> None:
        """Wait for nothing, and keep no connection that may lead nowhere."""
        self.start_over()
        if self.call is not None and self.call.is_doubted:
            self._end_call()

    def close(self) -> None:
        self.start_over()
        self._end_call()
