"""Mutants of the transfer protocol: who may say that blocks are held, and about which hold."""

from __future__ import annotations

from faults.mutants.mutant import Mutant

_SHORT = {"extra_config.defer_timeout": "0.2", "extra_config.renewal_timeout": "0.01"}
"""Leases that run out under readers, because nobody renews them."""
_QUEUED = {
    "engine.max_num_seqs": "1",
    "workload.interval_ms": "0",
    "workload.output_tokens": "[60, 90]",
}
"""Requests that wait on the consumer."""

LEASE_MUTANTS = (
    Mutant(
        name="reads-not-confirmed",
        breaks="Bytes count when they are read; nobody asks whether the blocks were still held.",
        module="connector.core.load",
        qualname="LOAD",
        right="Move(_S.CONFIRMING, (_A.ASK,))",
        wrong="_LOADED",
        settings=_SHORT | _QUEUED,
    ),
    Mutant(
        name="lease-by-own-clock",
        breaks="The consumer takes a lease to begin when the load is ordered, and does not ask.",
        module="connector.load_steps",
        qualname="LoadSteps._read",
        right="if load.order.hold is not None else",
        wrong="if now > load.started + 0.2 else",
        settings=_SHORT | _QUEUED,
    ),
    Mutant(
        name="renewal-counted-early",
        breaks="A rank says that it holds what its scheduler let go of, if a renewal had come.",
        module="connector.holds",
        qualname="HoldBook.take_orders",
        right="self._tell(orders.revoked, HoldEvent.REVOKED)",
        wrong="kept = {self._by_number[n].expected.request_id for n in self._renewed}; "
        "self._sent += [r for r in orders.revoked if r in kept]; "
        "self._tell([r for r in orders.revoked if r not in kept], HoldEvent.REVOKED)",
        settings=_QUEUED | {"extra_config.defer_timeout": "0.02"},
    ),
)
