"""Two legs that are sent at once, because the producer writes into the consumer's memory.

Each end has to know the other from the beginning. What it is told is what vLLM's proxies for
MoRIIO's WRITE mode tell it: the addresses of both in the request's id, and the other's in the
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.request_ids import addressed_id
from sim.router.surroundings import FrontEnd


@dataclass(frozen=True, eq=False)
class Pairing:
    """One attempt at a request: which producer writes to which consumer."""

    transfer_id: str
    producer: FrontEnd
    consumer: FrontEnd

    def request_id(self, leg: str) -> str:
        """The id under which an engine gets ``leg``."""
        producer, consumer = self.producer.side_channel, self.consumer.side_channel
        return addressed_id(leg, str(producer), str(consumer))

    def prefill_params(self) -> dict[str, Any]:
        """For the producer: who will decode."""
        return {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            **self._peer(self.consumer),
        }

    def decode_params(self) -> dict[str, Any]:
        """For the consumer: who prefills."""
        return {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            **self._peer(self.producer),
        }

    def _peer(self, engine: FrontEnd) -> dict[str, Any]:
        address = engine.side_channel
        assert address is not None, f"{engine.name} has no connector"
        return {
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": address.host,
            "remote_handshake_port": address.handshake_port,
            "remote_notify_port": address.notify_port,
            "remote_dp_rank": engine.data_parallel_rank,
            "remote_dp_size": engine.options.data_parallel_size,
            "remote_tp_size": engine.options.tp_size,
            "transfer_id": self.transfer_id,
        }
