"""Mutants of the transfer protocol: who may say that blocks are held, and about which hold."""

from __future__ import annotations

from faults.mutants.mutant import QUEUED, Change, Mutant

_SHORT = {"extra_config.defer_timeout": "0.2", "extra_config.renewal_timeout": "0.01"}
"""Leases that run out under readers, because nobody renews them."""

LEASE_MUTANTS = (
    Mutant(
        name="reads-not-confirmed",
        breaks="Bytes count when they are read; nobody asks whether the blocks were still held.",
        module="connector.core.load",
        qualname="LOAD",
        right="Move(_S.CONFIRMING, (_A.ASK,))",
        wrong="_LOADED",
        settings=_SHORT | QUEUED,
    ),
    Mutant(
        name="lease-by-own-clock",
        breaks="The consumer takes a lease to begin when the load is ordered, and does not ask.",
        module="connector.load_steps",
        qualname="LoadSteps._read",
        right="if load.order.hold is not None else",
        wrong="if now > load.started + 0.2 else",
        settings=_SHORT | QUEUED,
    ),
    Mutant(
        name="renewal-counted-early",
        breaks="A rank says that it holds what its scheduler let go of, if a renewal had come.",
        module="connector.holds",
        qualname="HoldBook.take_orders",
        right="self._tell(orders.revoked, HoldEvent.REVOKED)",
        wrong="kept = [n for n in orders.revoked if n in self._renewed]; "
        "self._sent += [self._by_number[n].expected.request_id for n in kept]; "
        "self._tell([n for n in orders.revoked if n not in kept], HoldEvent.REVOKED)",
        settings=QUEUED | {"extra_config.defer_timeout": "0.02"},
    ),
    Mutant(
        name="hold-of-earlier-start",
        breaks="Both sides take a hold of the producer's earlier start for one of this.",
        module="connector.conversation",
        qualname="Conversation.is_with",
        right="if is_recent:",
        wrong="if is_recent and self.heard.incarnation is not None:\n"
        "            return True\n"
        "        if is_recent:",
        also=(
            Change(
                module="connector.conversation",
                qualname="Conversation._talks_with",
                right="self.call.incarnation == incarnation",
                wrong="True",
            ),
            Change(
                module="connector.holds",
                qualname="HoldBook.is_held",
                right="if hold is None or hold_id.incarnation != self._incarnation:",
                wrong="if hold is None:",
            ),
        ),
        # Requests that wait on the consumer while their producer starts again and serves others.
        settings=QUEUED
        | {"workload.requests": "16", "workload.interval_ms": "200", "base_us": "50000"},
        faults=("crash",),
    ),
    Mutant(
        name="release-of-earlier-start",
        breaks="A release of an earlier start frees the blocks of a hold that a rank still knows.",
        module="connector.holds",
        qualname="HoldBook.release",
        right="if hold is None or hold.expected.transfer_id != transfer_id:",
        wrong="stale = self._by_number.get(hold_id.number) if hold_id and hold is None else None\n"
        "            if stale is not None:\n"
        "                self._sent.append(stale.expected.request_id)\n"
        "            if hold is None or hold.expected.transfer_id != transfer_id:",
        # As of hold-of-earlier-start: the first start's readers are done when the second has holds.
        settings=QUEUED
        | {"workload.requests": "16", "workload.interval_ms": "200", "base_us": "50000"},
        faults=("crash",),
    ),
)
