"""What a producer offers and a consumer takes up: ``kv_transfer_params``, checked.

Everything but `EXTENSION_KEY` has upstream's names and meaning, so that either side may run
vLLM's own MoRIIO connector.
"""

from __future__ import annotations

import hashlib
import reprlib
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from connector.core.addresses import IPV4, is_ipv4
from connector.core.errors import ForeignOffer, MalformedPayload
from connector.core.fingerprint import PROTOCOL_VERSION
from connector.core.groups import TransferGroups
from connector.core.keys import LONGEST_S
from connector.core.pairing import first_positions
from connector.core.payload import BlockLists, decode
from connector.core.prompt import Prompt

EXTENSION_KEY = "hybrid"
_PLACE = ("remote_host", "remote_handshake_port", "remote_notify_port")
_HIGHEST_PORT = 65535
_MOST_RANKS = 64  # that a consumer may have to release
_LARGEST = 2**63 - 1  # in a message


class HoldId(NamedTuple):
    """Names one hold for ever: the producer's start, and a number within it."""

    incarnation: str
    number: int


class Address(NamedTuple):
    """Where rank 0 of an engine listens.

    Args:
        host: its IPv4 address.
        handshake_port: of rank 0.
        notify_port: of rank 0.
        tp_size: ranks; their ports follow.
        dp_rank: data-parallel rank among those of its machine, which shifts the ports.
    """

    host: str
    handshake_port: int
    notify_port: int
    tp_size: int
    dp_rank: int = 0

    def port_of(self, first: int, rank: int) -> int:
        return first + self.dp_rank * self.tp_size + rank


class Offer(NamedTuple):
    """A producer's blocks for one request.

    Args:
        transfer_id: that both legs share.
        address: of the producer.
        blocks: the payload.
        firsts: the position of the first block of each payload entry.
        hold: None from an upstream producer, which cannot be asked about it.
        lease_s: how long the producer holds the blocks from each renewal on; 0 without a hold.
    """

    transfer_id: str
    address: Address
    blocks: BlockLists
    firsts: tuple[int, ...]
    hold: HoldId | None
    lease_s: float = 0.0


def parse_offer(
    params: Mapping[str, Any],
    groups: TransferGroups,
    *,
    prompt: Prompt,
    tp_size: int,
    embedded: tuple[str, int, int] | None = None,
) -> Offer:
    """Check the parameters of a decode leg.

    Args:
        params: as the router passed them on.
        groups: ours.
        prompt: of the request here.
        tp_size: ours, which an unknown size of the producer is taken for.
        embedded: host, handshake and notify port, if the request's id holds them.

    Raises:
        MalformedPayload: naming the key.
    """
    extension = _extension(params)
    if extension is not None:  # first: of a foreign offer nothing is ours to release
        _check_same(_prompt(extension), prompt)
    address = parse_address(params, tp_size=tp_size, embedded=embedded)
    blocks: Any = params.get("remote_block_ids")
    firsts: Any
    if extension is None:
        hold, lease_s = None, 0.0
        blocks = decode(groups, blocks)
        firsts = first_positions(groups, blocks, prompt.num_tokens)
    else:
        hold, lease_s = _hold(extension), _duration(extension, "lease_s")
        _check_size(_number(extension, "tp_size", 1, _MOST_RANKS), address.tp_size)
        firsts = extension.get("first_positions")
        if not _is_made_for(prompt, groups, extension, blocks):
            blocks, firsts = _checked_one_by_one(prompt, groups, extension, blocks)
    if groups.has_state and address.tp_size != tp_size:
        raise MalformedPayload(
            f"tp_size is {address.tp_size} on the producer and {tp_size} here; recurrent state can "
            "only be transferred between equal sizes"
        )
    return Offer(_text(params, "transfer_id"), address, blocks, tuple(firsts), hold, lease_s)


def _is_made_for(
    prompt: Prompt, groups: TransferGroups, extension: Mapping[str, Any], blocks: Any
) -> bool:
    """Whether the producer has made just this offer: then all is as it should be."""
    firsts: Any = extension.get("first_positions")
    try:
        return len(blocks) == len(firsts) == len(groups) and extension.get("digest") == _digest(
            blocks, firsts, prompt, _hold(extension)
        )
    except (TypeError, MalformedPayload):
        return False


def _checked_one_by_one(
    prompt: Prompt, groups: TransferGroups, extension: Mapping[str, Any], raw: object
) -> tuple[BlockLists, list[int]]:
    """Find what is wrong with an offer; MalformedPayload names it."""
    blocks = decode(groups, raw)
    firsts = _firsts(extension, len(groups))
    if extension.get("digest") != _digest(blocks, firsts, prompt, _hold(extension)):
        raise MalformedPayload(
            "the offer is not the one that the producer made: its digest differs"
        )
    return blocks, firsts


def parse_address(
    params: Mapping[str, Any], *, tp_size: int, embedded: tuple[str, int, int] | None = None
) -> Address:
    """Where the producer of ``params`` listens; enough to release it.

    Raises:
        MalformedPayload: naming the key.
    """
    dp_rank = params.get("remote_dp_rank")
    values = (
        "remote_host" if embedded is None else "host in the request's id",
        *(embedded or map(params.get, _PLACE)),
        params.get("remote_tp_size") or params.get("tp_size") or tp_size,
        0 if dp_rank is None else dp_rank,
        params.get("remote_dp_size_local") or 0,
    )
    try:
        return _address(*values)
    except TypeError:  # of a value without a hash
        return _address.__wrapped__(*values)


@lru_cache(maxsize=1024, typed=True)  # there are as many as producers
def _address(
    host_key: str,
    host: Any,
    handshake_port: Any,
    notify_port: Any,
    size: Any,
    dp_rank: Any,
    dp_local: Any,
) -> Address:
    dp_rank = _checked(dp_rank, "remote_dp_rank", 0)
    dp_local = _checked(dp_local, "remote_dp_size_local", 0)
    address = Address(
        _checked_host(host, host_key),
        _checked(handshake_port, "remote_handshake_port", 1, _HIGHEST_PORT),
        _checked(notify_port, "remote_notify_port", 1, _HIGHEST_PORT),
        tp_size=_checked(size, "tp_size", 1, _MOST_RANKS),
        dp_rank=dp_rank % dp_local if dp_local else dp_rank,  # each machine counts from 0
    )
    last = max(address.handshake_port, address.notify_port)
    _checked(address.port_of(last, address.tp_size - 1), "the last rank's port", 1, _HIGHEST_PORT)
    return address


def parse_hold(params: Mapping[str, Any]) -> HoldId | None:
    """The hold of an offer, which may be unusable otherwise; None from an upstream producer.

    Raises:
        MalformedPayload: naming the key.
    """
    extension = _extension(params)
    return None if extension is None else _hold(extension)


def _hold(extension: Mapping[str, Any]) -> HoldId:
    return HoldId(_text(extension, "incarnation"), _number(extension, "hold", 0, _LARGEST))


def make_extension(
    hold: HoldId,
    blocks: BlockLists,
    firsts: Sequence[int],
    hold_s: float,
    prompt: Prompt,
    *,
    tp_size: int,
) -> dict[str, Any]:
    """What this connector adds to the parameters, under `EXTENSION_KEY`."""
    return {
        "version": PROTOCOL_VERSION,
        "incarnation": hold.incarnation,
        "hold": hold.number,
        "first_positions": list(firsts),
        "prompt_tokens": prompt.num_tokens,
        "prompt_digest": prompt.digest,
        "digest": _digest(blocks, firsts, prompt, hold),
        "lease_s": hold_s,
        "tp_size": tp_size,
    }


def _digest(blocks: BlockLists, firsts: Sequence[int], prompt: Prompt, hold: HoldId) -> str:
    """Notices block ids and a prompt that are not those of the hold, which it alone would
    confirm, and another hold than theirs."""
    numbers = [prompt.num_tokens, *firsts]
    for ids in blocks:
        numbers.append(len(ids))
        numbers += ids
    try:
        packed = struct.pack(f"<{len(numbers)}q", *numbers)
    except struct.error:
        raise MalformedPayload("a number in the offer has more than 64 bits") from None
    names = f"{prompt.digest} {hold.incarnation} {hold.number}".encode(errors="surrogatepass")
    return hashlib.blake2b(packed + names, digest_size=16).hexdigest()


def _check_same(theirs: Prompt, ours: Prompt) -> None:
    """Another prompt may have as many blocks."""
    if theirs.num_tokens != ours.num_tokens:
        raise ForeignOffer(
            f"the producer's prompt has {theirs.num_tokens} tokens, the one here "
            f"{ours.num_tokens}; both legs must have the same prompt"
        )
    if theirs.digest != ours.digest:
        raise ForeignOffer(
            "the producer's prompt has other tokens or media, or another LoRA adapter, than the "
            "one here; both legs must have the same prompt"
        )


def _check_size(theirs: int, told: int) -> None:
    """A router may have lost the size, or put another. By a wrong one this rank would read from
    a rank that holds other heads of the same shape."""
    if theirs != told:
        raise MalformedPayload(
            f"the producer has {theirs} tensor-parallel ranks, and the parameters say {told}; the "
            "router has to pass tp_size on as it is"
        )


def _extension(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    extension = params.get(EXTENSION_KEY)
    if extension is None:
        return None
    if not isinstance(extension, Mapping):
        raise MalformedPayload(f"{EXTENSION_KEY} is {reprlib.repr(extension)}; expected a mapping")
    version = extension.get("version")
    if version != PROTOCOL_VERSION:
        raise MalformedPayload(
            f"{EXTENSION_KEY}.version is {reprlib.repr(version)}; this connector speaks "
            f"{PROTOCOL_VERSION}; run the same connector on both engines"
        )
    return extension


def _firsts(extension: Mapping[str, Any], num_groups: int) -> list[int]:
    firsts = extension.get("first_positions")
    if not isinstance(firsts, list | tuple) or len(firsts) != num_groups:
        raise MalformedPayload(
            f"first_positions is {reprlib.repr(firsts)}; expected {num_groups} numbers"
        )
    return [_checked(first, "first_positions", 0) for first in firsts]


def _prompt(extension: Mapping[str, Any]) -> Prompt:
    return Prompt(_number(extension, "prompt_tokens", 1), _text(extension, "prompt_digest"))


def _checked_host(value: Any, key: str) -> str:
    if not is_ipv4(value):
        raise MalformedPayload(
            f"{key} is {reprlib.repr(value)}; expected {IPV4}: set host_ip on the producer to its "
            "own"
        )
    return str(value)


def _text(params: Mapping[str, Any], key: str) -> str:
    value: Any = params.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedPayload(f"{key} is {reprlib.repr(value)}; expected a text")
    return value


def _duration(params: Mapping[str, Any], key: str) -> float:
    value: Any = params.get(key)
    if type(value) not in (int, float) or not 0 < value <= LONGEST_S:
        raise MalformedPayload(
            f"{key} is {reprlib.repr(value)}; expected a finite number of seconds above 0, at most "
            f"{LONGEST_S}"
        )
    return float(value)


def _number(params: Mapping[str, Any], key: str, low: int, high: int | None = None) -> int:
    return _checked(params.get(key), key, low, high)


def _checked(value: Any, key: str, low: int, high: int | None = None) -> int:
    try:
        number = int(value) if isinstance(value, int | str) else None
    except ValueError:
        number = None
    if number is None or isinstance(value, bool) or number < low:
        raise MalformedPayload(f"{key} is {reprlib.repr(value)}; expected a number from {low} on")
    if high is not None and number > high:
        raise MalformedPayload(f"{key} is {reprlib.repr(value)}; expected a number up to {high}")
    return number
