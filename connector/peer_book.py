"""The producer ranks that one consumer rank reads from. Used by the loader's thread alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING, TypeAlias

from connector.core.errors import ConnectorError, PeerMismatch
from connector.core.offer import Address, HoldId
from connector.core.ranks import source_rank
from connector.counters import Counters
from connector.logs import log

if TYPE_CHECKING:
    from connector.peer import Peer  # needs mori, this does not

MakePeer: TypeAlias = "Callable[[str, int], Peer]"

_MOST_KEPT = 128  # two files each, of the 1024 that a process may have open by default


class PeerBook:
    """Knows each producer rank once, and which of them cannot confirm what they hold.

    Producers come and go, and addresses may be wrong, so only the ranks that were used last are
    kept besides those in use.

    Args:
        make_peer: for a host and a handshake port.
        rank: of tensor parallelism.
        tp_size: of this engine.
        counters: of this rank.
        requires_safe_reads: whether peers are refused that cannot confirm what is wanted.
        verifies_reads: whether they are to confirm what they hold, too.
    """

    def __init__(
        self,
        make_peer: MakePeer,
        rank: int,
        tp_size: int,
        counters: Counters,
        *,
        requires_safe_reads: bool,
        verifies_reads: bool,
    ) -> None:
        self._make_peer = make_peer
        self._rank = rank
        self._tp_size = tp_size
        self._counters = counters
        self._requires_safe_reads = requires_safe_reads
        self._verifies_reads = verifies_reads
        self._peers: dict[tuple[str, int], Peer] = {}
        self._unsafe: dict[str, None] = {}
        self._unverified: dict[str, None] = {}
        self._log = log.bind(role="consumer", half="worker", rank=rank)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def source(self, address: Address) -> Peer:
        """The rank of a producer that this rank reads from.

        Raises:
            PeerMismatch: the sizes of the two engines do not fit.
        """
        rank = source_rank(self._rank, self._tp_size, address.tp_size)
        key = (address.host, address.port_of(address.handshake_port, rank))
        peer = self._peers.pop(key, None) or self._make_peer(*key)
        self._peers[key] = peer  # behind all others
        return peer

    def close_unused(self, in_use: Container[Peer | None]) -> None:
        """Wait for no handshake that nobody needs, and forget ranks that are not used any more."""
        surplus = len(self._peers) - _MOST_KEPT
        for key, peer in list(self._peers.items()):
            if peer in in_use:
                continue
            peer.close_handshake()
            if surplus > 0:
                surplus -= 1
                peer.close()
                del self._peers[key]
                self._unsafe.pop(peer.name, None)
                self._unverified.pop(peer.name, None)

    def receive(self, now: float) -> None:
        """Take the answers that have arrived."""
        for peer in self:
            try:
                peer.talk.receive(now)
            except ConnectorError as error:
                self._counters.add("malformed_messages")
                self._log.warning("message-dropped", peer=peer.name, reason=str(error))

    def check_source(self, peer: Peer, address: Address) -> None:
        """Refuse a connected peer that is another rank than `source` wanted: it has other heads, of
        the same shape.

        Raises:
            PeerMismatch: naming both.
        """
        assert peer.welcome is not None
        place = peer.welcome.place
        wanted = source_rank(self._rank, self._tp_size, address.tp_size)
        if place is not None and place != (wanted, address.tp_size):
            raise PeerMismatch(
                f"{peer.name} is rank {place.rank} of {place.tp_size}, and rank {wanted} of "
                f"{address.tp_size} was to be read from; the router has to pass "
                "remote_handshake_port and tp_size on as they are"
            )

    def check_safe(self, peer: Peer, hold: HoldId | None) -> None:
        """Tell once of a connected peer that it cannot confirm that it holds blocks, or what.

        Args:
            peer: to be read from.
            hold: that its offer names.

        Raises:
            ConnectorError: it cannot, and has to.
            PeerMismatch: it could, but its offer does not say what it has to be asked about.
        """
        assert peer.welcome is not None
        if hold is None and peer.welcome.incarnation is not None:
            raise PeerMismatch(
                f"{peer.name} can confirm that it holds blocks, but its offer names no hold: the "
                "router has dropped the key 'hybrid' of kv_transfer_params"
            )
        if self._verifies_reads and not peer.welcome.digests:
            self._check_unverified(peer)
        if hold is not None or peer.name in self._unsafe:
            return
        if self._requires_safe_reads:
            raise ConnectorError(
                f"{peer.name} cannot confirm that it holds blocks while they are read, and "
                "require_safe_reads is set"
            )
        self._unsafe[peer.name] = None
        self._counters.add("unprotected_peers")
        self._log.warning(
            "peer-unprotected",
            peer=peer.name,
            reason="it runs another connector, which may free blocks while they are read",
        )

    def _check_unverified(self, peer: Peer) -> None:
        if peer.name in self._unverified:
            return
        if self._requires_safe_reads:
            raise ConnectorError(
                f"{peer.name} cannot tell digests of what it holds, and both verify_reads and "
                "require_safe_reads are set"
            )
        self._unverified[peer.name] = None
        self._counters.add("unverified_peers")
        self._log.warning(
            "peer-unverified",
            peer=peer.name,
            reason="it cannot tell digests of what it holds, so reads from it are not verified",
        )

    def close(self) -> None:
        for peer in self:
            peer.close()
