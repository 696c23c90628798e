"""Which loads are verified, what is asked about them, and what a producer's rank answers."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
import zmq
from hypothesis import given
from hypothesis import strategies as st
from vllm.utils.network_utils import get_open_port
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

from connector import wire
from connector.core.errors import MalformedPayload
from connector.core.offer import HoldId
from connector.core.verification import MOST_BYTES, Piece, differing, is_verified, shares
from connector.counters import Counters
from connector.digests import Digester
from connector.holds import HoldBook
from connector.listener import Listener
from connector.memory import CacheMemory
from connector.metadata import ExpectedHold, StepOrders

HOLD = HoldId("now", 1)
ATTENTION = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.bfloat16)
STATE = MambaSpec(
    block_size=4, shapes=((2, 3), (4, 5)), dtypes=(torch.float32, torch.float32),
    page_size_padded=128, mamba_type="linear_attention",
)  # fmt: skip


def memory() -> CacheMemory:
    """Six blocks of an attention layer whose heads lie apart, and of a state with padding."""
    content = ATTENTION.page_size_bytes // 2 // 2 // 4
    token_major = torch.arange(6 * 4 * 2 * content).to(torch.bfloat16).reshape(6, 4, 2, content)
    state = torch.arange(6 * 128).remainder(251).to(torch.uint8).reshape(6, 1, 1, 128)
    return CacheMemory(
        {"attn": token_major.transpose(1, 2), "kda": state},
        {"attn": ATTENTION, "kda": STATE},
        {"attn": 0, "kda": 1},
    )


# ------------------------------------------------------------- what is compared


@given(st.text())
def test_every_rank_chooses_the_same_loads(transfer_id: str) -> None:
    """By the transfer's id alone."""
    assert is_verified("all", transfer_id)
    assert not is_verified("off", transfer_id)
    assert is_verified("sample", transfer_id) == (zlib.crc32(transfer_id.encode()) % 16 == 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 4_096, 3 << 20, MOST_BYTES, MOST_BYTES + 1]),
            st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12),
        ),
        max_size=6,
    )
)
def test_everything_that_was_read_is_asked_about_once(layers: list[Any]) -> None:
    """In order, and no more at once than a producer takes."""
    named = [(f"layer-{n}", size, pairs) for n, (size, pairs) in enumerate(layers)]
    size_of = {name: size for name, size, _ in named}
    asked = []
    for share in shares(named):
        pieces = [(piece, len(piece.ours)) for piece in share]
        assert all(count for _, count in pieces)
        total = sum(size_of[piece.layer] * count for piece, count in pieces)
        assert total <= MOST_BYTES or sum(count for _, count in pieces) == 1
        asked += [(p.layer, pair) for p in share for pair in zip(p.ours, p.theirs, strict=True)]
    assert asked == [(name, pair) for name, _, pairs in named for pair in pairs]


def test_a_difference_has_its_place() -> None:
    """By layer and block; and what cannot be compared differs."""
    share = [Piece("a", (3, 4), (7, 8)), Piece("b", (3,), (7,))]
    assert differing(share, [1, 2, 3], [1, 2, 3]) == []
    assert differing(share, [1, 2, 3], [1, 5, 3]) == [("a", 4, 8)]
    assert len(differing(share, [1, 2, 3], [])) == 3


def test_the_bytes_of_a_block_do_not_depend_on_the_layout() -> None:
    """Heads are in order whatever the strides, and padding is not looked at."""
    attention, state = memory().layers
    rows = attention.contents([4, 1])
    assert rows.shape == (2, ATTENTION.page_size_bytes)
    expected = attention.cache[4].contiguous().view(torch.uint8).flatten()
    assert torch.equal(rows[0], expected)
    before = state.contents([2])
    assert before.shape == (1, STATE.state_content_size_bytes)
    assert STATE.state_content_size_bytes < 128
    state.cache[2, 0, 0, STATE.state_content_size_bytes :] = 7
    assert torch.equal(state.contents([2]), before)
    state.cache[2, 0, 0, STATE.state_content_size_bytes - 1] += 1
    assert not torch.equal(state.contents([2]), before)


# ------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([("mlp", (1,))], "of a layer 'mlp': there is none"),
        ([("attn", (1, 6))], "block 6 of attn; it has 6"),
        ([("attn", (-1,))], "block -1 of attn"),
        ([("attn", (1,) * (MOST_BYTES // ATTENTION.page_size_bytes + 1))], "the most is"),
    ],
)
def test_only_what_there_is_is_digested(blocks: Any, message: str) -> None:
    """Nothing outside the registered caches is read for a peer, nor too much at once."""
    with pytest.raises(MalformedPayload, match=message):
        Digester(memory()).check(blocks)


@pytest.mark.parametrize("blocks", [7, ["attn"], [["attn", 1]], [["attn", ["x"]]], [[1, [1]]]])
def test_a_malformed_question_is_one(blocks: Any) -> None:
    """Whatever is in place of blocks."""
    message = wire._pack({"ask": 1, "incarnation": "now", "hold": 1, "blocks": blocks})
    with pytest.raises(MalformedPayload, match="blocks: "):
        wire.decode_question(message)
    with pytest.raises(MalformedPayload, match="digests: "):
        wire.decode_answer(wire._pack({"answer": 1, "held": True, "digests": blocks}))


def test_messages_arrive_as_they_were_sent() -> None:
    """With blocks and without."""
    for blocks in ((), (("attn", (1, 2)), ("kda", (3,)))):
        question = wire.Question(HOLD, 3, blocks)
        assert wire.decode_question(wire.encode_question(question)) == question
    for digests in ((), (7, 2**32 - 1)):
        answer = wire.Answer(3, True, digests)
        assert wire.decode_answer(wire.encode_answer(answer)) == answer


# ------------------------------------------------------- the producer's side channel


class SlowDigester:
    """Computes when it is let, and does ``meanwhile`` before it is done."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.meanwhile: Callable[[], None] = lambda: None
        self._thread = ThreadPoolExecutor(1)

    def check(self, blocks: Any) -> None:
        if blocks[0][0] == "mlp":
            raise MalformedPayload("there is none")

    def run(self, job: Callable[[], Any]) -> Future[Any]:
        return self._thread.submit(job)

    def digests(self, blocks: Any) -> tuple[int, ...]:
        assert self.go_on.wait(60)
        self.meanwhile()
        return tuple(block for _, ids in blocks for block in ids)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class Side:
    """A producer rank that holds one request's blocks, and a peer's socket to it."""

    def __init__(self) -> None:
        self.holds = HoldBook(tp_size=1)
        expected = ExpectedHold("req", "t", HOLD.number)
        self.holds.take_orders(
            StepOrders(incarnation="now", expected=[expected], offered=[HOLD.number])
        )
        self.digester = SlowDigester()
        self.counters = Counters()
        ports = get_open_port(), get_open_port()
        digester: Any = self.digester
        self.listener = Listener(*ports, self.holds, digester, lambda: (b"", b""), self.counters)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, 60_000)
        self._socket.connect(f"tcp://127.0.0.1:{ports[0]}")

    def ask(self, number: int, *blocks: tuple[str, tuple[int, ...]]) -> None:
        self._socket.send(wire.encode_question(wire.Question(HOLD, number, blocks)))

    def answer(self) -> wire.Answer:
        return wire.decode_answer(self._socket.recv_multipart()[-1])

    def close(self) -> None:
        self.digester.go_on.set()
        self.listener.close()
        self._context.destroy(linger=0)


@pytest.fixture
def side() -> Iterator[Side]:
    opened = Side()
    yield opened
    opened.close()


def test_other_questions_do_not_wait_for_digests(side: Side) -> None:
    """And a question that waits is not taken twice."""
    side.ask(1, ("attn", (4, 5)))
    side.ask(1, ("attn", (4, 5)))
    side.ask(2)
    assert side.answer() == wire.Answer(2, True)
    side.digester.go_on.set()
    assert side.answer() == wire.Answer(1, True, (4, 5))
    side.ask(3)
    assert side.answer() == wire.Answer(3, True), "the repeated question was answered, too"


def test_blocks_that_are_let_go_of_meanwhile_have_no_digests(side: Side) -> None:
    """They may have been somebody else's when they were read."""
    revoked = StepOrders(incarnation="now", revoked=[HOLD.number])
    side.digester.meanwhile = lambda: side.holds.take_orders(revoked)
    side.digester.go_on.set()
    side.ask(1, ("attn", (4,)))
    assert side.answer() == wire.Answer(1, False)


def test_a_question_that_cannot_be_answered_ends_nothing(side: Side) -> None:
    """One about a layer that there is not, and one in which the program fails: the next ones are
    answered."""

    def fail() -> None:
        side.digester.meanwhile = lambda: None
        raise RuntimeError("the device says no")

    side.digester.go_on.set()
    side.digester.meanwhile = fail
    side.ask(1, ("mlp", (4,)))
    side.ask(2, ("attn", (4,)))
    side.ask(3, ("attn", (4,)))
    assert side.answer() == wire.Answer(3, True, (4,))
    side.ask(2, ("attn", (4,)))
    assert side.answer() == wire.Answer(2, True, (4,))
    assert side.counters.take()["malformed_messages"] == 1
