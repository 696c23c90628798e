"""The connector's own transport over ``mori.io``: its reads, and what it makes of failures."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from connector.core.config import Settings
from hw_tests.conformance.arm import Arm, Cases

case = Cases()

_SETTINGS = Settings(role="kv_consumer", handshake_port=6301, notify_port=61005)
_SIZE = 8192


def _settled(arm: Arm, module: Any, status: Any) -> Any:
    for _ in range(20_000):
        state = module.state_of([status])
        if state != module.ReadState.IN_FLIGHT:
            return state
        arm.sleep(0.001)
    raise AssertionError("a read did not end within 20 s")


class _Connected(NamedTuple):
    """A consumer with a session, and a producer, which is gone when nobody refers to it."""

    module: Any
    consumer: Any
    producer: Any
    session: Any
    ours: Any
    theirs: Any


def _connected(arm: Arm) -> _Connected:
    module, consumer, producer = arm.transports(_SETTINGS)
    ours = torch.zeros(_SIZE, dtype=torch.uint8)
    theirs = torch.zeros(_SIZE, dtype=torch.uint8)
    theirs.copy_(torch.arange(_SIZE) * 31 % 251)
    local, remote = consumer.register(ours), producer.register(theirs)
    assert consumer.add_peer(producer.descriptor) == remote.engine_key
    session = consumer.open_session(local, module.unpack_memory(remote.pack()))
    return _Connected(module, consumer, producer, session, ours, theirs)


@case("1.7", "transport")
def the_connectors_transport_reads_what_it_is_told_to(arm: Arm) -> None:
    """Each piece where it belongs, and not a byte beside it."""
    module, consumer, _producer, session, ours, theirs = _connected(arm)
    pieces = [(0, 2000, 100), (100, 5000, 64), (4096, 0, 1024), (8000, 8100, 92)]
    assert not consumer.has_read
    status = consumer.read(session, *[[piece[part] for piece in pieces] for part in range(3)])
    assert consumer.has_read
    assert _settled(arm, module, status) == module.ReadState.DONE
    expected = torch.zeros(_SIZE, dtype=torch.uint8)
    for here, there, size in pieces:
        expected[here : here + size].copy_(theirs[there : there + size])
    assert torch.equal(ours, expected)
    assert consumer.close()


@case("1.7", "transport")
def the_connectors_transport_tells_failures(arm: Arm) -> None:
    """A read beyond the memory fails by its status, a descriptor that is none by an error."""
    module, consumer, _producer, session, ours, _theirs = _connected(arm)
    status = consumer.read(session, [0], [_SIZE - 10], [20])
    assert _settled(arm, module, status) == module.ReadState.FAILED
    assert module.describe_failure([status]).startswith("length out of range")
    assert not module.is_queue_full(status)
    assert not ours.any()
    for refused in (consumer.add_peer, module.unpack_memory):
        with pytest.raises(module.TransportError, match="descriptor cannot be read"):
            refused(b"no descriptor")
