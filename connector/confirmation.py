"""What a producer is asked after all reads of a load have succeeded: whether it still holds the
blocks, and, for a load that is verified, for digests of what they hold.

Nothing here waits. Used by the loader's thread alone; digests are computed in another.
"""

from __future__ import annotations

from functools import partial

from connector.core.errors import ConnectorError, PeerMismatch
from connector.core.load import Cause, LoadEvent
from connector.core.verification import VerifyReads, differing, is_verified, shares
from connector.digests import Digester
from connector.loads import Asked, Load
from connector.memory import CacheMemory
from connector.wire import Answer, Question

_DIGESTS_TAKE = 10  # times as long as another answer, with those that others have asked for before


class Confirmation:
    """Asks about loads of one rank, and compares.

    Args:
        mode: which loads are verified.
        memory: of this rank.
        group_names: of the payload's entries, for messages.
        digester: of the same memory.
        control_timeout_s: for one answer, after which the question is repeated.
    """

    def __init__(
        self,
        mode: VerifyReads,
        memory: CacheMemory,
        group_names: list[str],
        digester: Digester,
        control_timeout_s: float,
    ) -> None:
        self._mode: VerifyReads = mode
        self._memory = memory
        self._group_names = group_names
        self._digester = digester
        self._control_timeout_s = control_timeout_s
        self._questions = 0

    def verifies(self, load: Load) -> bool:
        """Whether a load from this peer is believed only if its bytes are the producer's."""
        assert load.peer is not None
        return load.peer.tells_digests and is_verified(self._mode, load.order.transfer_id)

    def begin(self, load: Load) -> None:
        """Ask the first question about a load when it goes on."""
        if load.is_verified:
            pairs = load.order.plan.pairs
            load.to_verify = shares(
                (layer.name, layer.blocks.size, pairs[layer.payload_index])
                for layer in self._memory.layers
            )
        self._next(load)

    def go_on(self, load: Load, now: float) -> LoadEvent | None:
        """What has come out; None if that is not known yet."""
        assert load.peer is not None
        assert load.asked is not None
        talk = load.peer.talk
        answer = talk.answer(load.asked.number)
        if answer is None:
            self._doubt(load, load.asked, now)
            is_due = now >= load.next_at or load.asked.call is not talk.call
            return self._ask(load, load.asked, now) if is_due else None
        if not answer.is_held:
            load.cause = Cause.NO_LONGER_HELD
            load.reason = "the producer no longer holds the blocks"
            return LoadEvent.GONE
        return LoadEvent.HELD if load.asked.digests is None else self._compare(load, answer, now)

    def end(self, load: Load) -> None:
        """Wait for no answer any longer."""
        if load.peer is not None and load.asked is not None:
            load.peer.talk.drop(load.asked.number)

    def close(self) -> None:
        self._digester.close()

    # ---------------------------------------------------------------- internal

    def _next(self, load: Load) -> Asked:
        self.end(load)
        self._questions += 1
        asked = load.asked = Asked(self._questions, [], None)
        load.next_at = 0.0
        if load.to_verify:
            share = asked.share = load.to_verify.pop(0)
            ours = [(piece.layer, piece.ours) for piece in share]
            asked.digests = self._digester.run(partial(self._digester.digests, ours))
        return asked

    def _ask(self, load: Load, asked: Asked, now: float) -> LoadEvent | None:
        """Once the peer is reached: the connection that it was read over may have gone."""
        assert load.peer is not None
        talk, hold = load.peer.talk, load.order.hold
        assert hold is not None
        try:
            is_reached = talk.reach(now, hold.incarnation, since=load.started)
        except PeerMismatch as error:
            load.cause, load.reason = Cause.NO_LONGER_HELD, str(error)
            return LoadEvent.GONE
        except ConnectorError:
            return None  # what answered may answer better until the load's deadline
        theirs = tuple((piece.layer, piece.theirs) for piece in asked.share)
        if is_reached and talk.ask(Question(hold, asked.number, theirs)):
            if asked.call is not talk.call:
                asked.call, asked.asked_at = talk.call, now
                asked.calls += 1
            load.next_at = now + self._control_timeout_s
        return None

    def _doubt(self, load: Load, asked: Asked, now: float) -> None:
        """Whether the connection that was asked on still leads to the producer, if nothing has come
        over it for long. Digests take their time; and each further connection is given longer, so
        that the answer of a slow producer comes before there is another."""
        assert load.peer is not None
        patience_s = self._control_timeout_s * (1 if asked.digests is None else _DIGESTS_TAKE)
        patience_s *= 2 ** (asked.calls - 1)
        if now - asked.asked_at >= patience_s:
            load.peer.talk.doubt(asked.call, since=now - patience_s)

    def _compare(self, load: Load, answer: Answer, now: float) -> LoadEvent | None:
        assert load.asked is not None
        assert load.asked.digests is not None
        if not load.asked.digests.done():
            return None
        ours = load.asked.digests.result()
        different = differing(load.asked.share, ours, answer.digests)
        if different:
            load.cause, load.reason = Cause.WRONG_BYTES, self._describe(different)
            return LoadEvent.DOUBTED
        if not load.to_verify:
            return LoadEvent.HELD
        return self._ask(load, self._next(load), now)

    def _describe(self, different: list[tuple[str, int, int]]) -> str:
        layer, ours, theirs = different[0]
        index = next(each.payload_index for each in self._memory.layers if each.name == layer)
        more = f", and in {len(different) - 1} more places" if len(different) > 1 else ""
        return (
            f"block {ours} holds other bytes for {layer} than the producer's block {theirs}, in "
            f"the {self._group_names[index]}{more}"
        )
