"""Messages between engines, as bytes: upstream's, and the extensions between two of ours.

Handshake port: ``get_meta_msg`` is answered with upstream's two frames, its agent metadata and
the memory descriptors by layer. To the first we add one field that upstream does not look at; it
tells a peer of ours that it may send questions and renewals, which upstream's listener would die
of.

Notify port: upstream's release. One key is added, for peers that have told that they know it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import (
    MoRIIOAgentMetadata,
    MoRIIOConstants,
)

from connector.core.errors import MalformedPayload, PeerMismatch
from connector.core.fingerprint import PROTOCOL_VERSION, Fingerprint
from connector.core.offer import EXTENSION_KEY, HoldId
from connector.core.verification import DIGEST, Blocks, Digest

GET_META: bytes = MoRIIOConstants.GET_META_MSG

_MOST = 2**63 - 1  # what any peer can hold and send back

MemoryDescriptors = dict[str, list[bytes]]
"""Packed descriptors of each layer's regions."""


class AgentMetadata(MoRIIOAgentMetadata):
    """Upstream's handshake answer and our extension, which upstream's decoder skips."""

    hybrid: dict[str, Any] = {}  # noqa: RUF012  # msgspec copies the default


class RankPlace(NamedTuple):
    """One of ``tp_size`` tensor-parallel ranks."""

    rank: int
    tp_size: int


@dataclass(frozen=True)
class Welcome:
    """A peer's answer to the handshake.

    Args:
        metadata: in upstream's form.
        descriptors: of its memory.
        incarnation: of its scheduler; None from an upstream peer.
        fingerprint: of its caches; None from an upstream peer.
        digests: whether it can be asked for our kind of digests.
        place: of the rank that answers; None from an upstream peer.
    """

    metadata: AgentMetadata
    descriptors: MemoryDescriptors
    incarnation: str | None
    fingerprint: Fingerprint | None
    digests: bool = False
    place: RankPlace | None = None


def encode_welcome(
    metadata: dict[str, Any],
    descriptors: MemoryDescriptors,
    incarnation: str,
    fingerprint: Fingerprint,
    place: RankPlace,
) -> tuple[bytes, bytes]:
    """The two frames that answer ``get_meta_msg``."""
    extension = {
        "version": PROTOCOL_VERSION,
        "incarnation": incarnation,
        "fingerprint": fingerprint,
        "digest": DIGEST,
        "rank": place.rank,
        "tp_size": place.tp_size,
    }
    return (
        msgspec.msgpack.encode(AgentMetadata(**metadata, hybrid=extension)),
        msgspec.msgpack.encode(descriptors),
    )


def decode_welcome(first: bytes, second: bytes) -> Welcome:
    """A peer's answer to the handshake.

    Raises:
        MalformedPayload: it is none.
        PeerMismatch: the peer runs this connector in another version.
    """
    try:
        metadata = msgspec.msgpack.decode(first, type=AgentMetadata)
        descriptors = msgspec.msgpack.decode(second)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedPayload(f"the handshake answer cannot be decoded: {error}") from None
    for number in (metadata.num_blocks, *metadata.kv_caches_base_addr):
        _number({"the handshake answer": number}, "the handshake answer")
    if not isinstance(descriptors, dict) or not all(
        isinstance(regions, list) and all(isinstance(region, bytes) for region in regions)
        for regions in descriptors.values()
    ):
        raise MalformedPayload("the handshake answer has no memory descriptors by layer")
    extension = metadata.hybrid
    if not extension:
        return Welcome(metadata, descriptors, None, None)
    if extension.get("version") != PROTOCOL_VERSION:
        raise PeerMismatch(
            f"the peer speaks version {reprlib.repr(extension.get('version'))} of the transfer "
            f"protocol and this engine {PROTOCOL_VERSION}; run the same connector on both"
        )
    fingerprint = extension.get("fingerprint")
    if not isinstance(fingerprint, dict):
        raise MalformedPayload(f"fingerprint is {reprlib.repr(fingerprint)}; expected a mapping")
    digests = extension.get("digest") == DIGEST
    place = RankPlace(_number(extension, "rank"), _number(extension, "tp_size", 1))
    incarnation = _text(extension, "incarnation")
    return Welcome(metadata, descriptors, incarnation, fingerprint, digests=digests, place=place)


# ------------------------------------------------------- is it held, and what is in it?


@dataclass(frozen=True)
class Question:
    """Whether a hold is held, and what digests some blocks have.

    Args:
        hold: that is asked about.
        number: comes back with the answer.
        blocks: to be digested; only a peer whose welcome says so is asked for any.
    """

    hold: HoldId
    number: int
    blocks: tuple[Blocks, ...] = ()


@dataclass(frozen=True)
class Answer:
    """``digests`` are of all blocks of the question, in order; none if they are not held."""

    number: int
    is_held: bool
    digests: tuple[Digest, ...] = ()


def encode_question(question: Question) -> bytes:
    hold = question.hold
    fields = {"ask": question.number, "incarnation": hold.incarnation, "hold": hold.number}
    return _pack(fields | ({"blocks": question.blocks} if question.blocks else {}))


def decode_question(message: bytes) -> Question:
    """Raises MalformedPayload."""
    fields = _unpack(message)
    blocks = _converted(fields, "blocks", tuple[Blocks, ...])
    return Question(_hold(fields), _number(fields, "ask"), blocks)


def encode_answer(answer: Answer) -> bytes:
    fields = {"answer": answer.number, "held": answer.is_held}
    return _pack(fields | ({"digests": answer.digests} if answer.digests else {}))


def decode_answer(message: bytes) -> Answer:
    """Raises MalformedPayload."""
    fields = _unpack(message)
    is_held = fields.get("held")
    if type(is_held) is not bool:
        raise MalformedPayload(f"not an answer: {reprlib.repr(fields)}")
    digests = _converted(fields, "digests", tuple[Digest, ...])
    return Answer(_number(fields, "answer"), is_held, digests)


# ---------------------------------------------------------------------- renewals


def encode_renewal(incarnation: str, numbers: Sequence[int]) -> bytes:
    """Ask for more time for some holds of one start of a producer; nobody answers."""
    return _pack({"renew": list(numbers), "incarnation": incarnation})


def decode_renewal(message: bytes) -> list[HoldId] | None:
    """The holds; None if ``message`` is not a renewal.

    Raises:
        MalformedPayload: it is a broken one, or no message of ours at all.
    """
    fields = _unpack(message)
    if "renew" not in fields:
        return None
    numbers, incarnation = fields["renew"], _text(fields, "incarnation")
    if not isinstance(numbers, list):
        raise MalformedPayload(f"not a renewal: {reprlib.repr(fields)}")
    return [HoldId(incarnation, _number({"renew": number}, "renew")) for number in numbers]


# ---------------------------------------------------------------------- releases


@dataclass(frozen=True)
class Release:
    """A reader is done with a producer rank's blocks.

    Args:
        transfer_id: that both legs share.
        consumer_size: ranks of the consumer.
        hold: if the reader knows it.
        reader: the consumer's rank, if the message tells.
    """

    transfer_id: str
    consumer_size: int
    hold: HoldId | None = None
    reader: int | None = None


def encode_release(release: Release) -> bytes:
    """Upstream's release, with our extension if the hold is known."""
    fields: dict[str, Any] = {
        "type": "release",
        "transfer_id": release.transfer_id,
        "consumer_tp_size": release.consumer_size,
    }
    if release.hold is not None:
        fields[EXTENSION_KEY] = {
            "version": PROTOCOL_VERSION,
            "incarnation": release.hold.incarnation,
            "hold": release.hold.number,
            "reader": release.reader,
        }
    return msgspec.msgpack.encode(fields)


def decode_release(message: bytes) -> Release:
    """A release in upstream's structured form, or its older one, a bare transfer id.

    Raises:
        MalformedPayload: anything else.
    """
    try:
        fields = msgspec.msgpack.decode(message)
    except (msgspec.MsgspecError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return _bare_release(message)
    if fields.get("type") != "release":
        raise MalformedPayload(f"not a release: {reprlib.repr(fields)}")
    transfer_id = _text(fields, "transfer_id")
    size = _number({"consumer_tp_size": 1, **fields}, "consumer_tp_size", 1)
    extension = fields.get(EXTENSION_KEY)
    if extension is None:
        return Release(transfer_id, size)
    if not isinstance(extension, dict):
        raise MalformedPayload(f"not a release: {reprlib.repr(fields)}")
    return Release(transfer_id, size, _hold(extension), _number(extension, "reader"))


def _bare_release(message: bytes) -> Release:
    try:
        transfer_id = message.decode()
    except UnicodeDecodeError:
        transfer_id = ""
    if not transfer_id or not transfer_id.isprintable():
        raise MalformedPayload(f"not a release: {message[:80]!r}")
    return Release(transfer_id, 1)


def _pack(fields: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode({"type": EXTENSION_KEY, "version": PROTOCOL_VERSION, **fields})


def _unpack(message: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.msgpack.decode(message)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedPayload(f"not msgpack: {error}") from None
    if not isinstance(fields, dict) or fields.get("type") != EXTENSION_KEY:
        raise MalformedPayload(f"unknown message {message[:80]!r}")
    if fields.get("version") != PROTOCOL_VERSION:
        raise MalformedPayload(
            f"version {reprlib.repr(fields.get('version'))}; known is {PROTOCOL_VERSION}"
        )
    return fields


def _hold(fields: Mapping[str, Any]) -> HoldId:
    return HoldId(_text(fields, "incarnation"), _number(fields, "hold"))


def _converted(fields: Mapping[str, Any], key: str, kind: Any) -> Any:
    """A list of a message that may be left out."""
    try:
        return msgspec.convert(fields.get(key, ()), kind)
    except msgspec.ValidationError as error:
        raise MalformedPayload(f"{key}: {error}") from None


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise MalformedPayload(f"{key} is {reprlib.repr(value)}; expected a text")
    return value


def _number(fields: Mapping[str, Any], key: str, low: int = 0) -> int:
    value = fields.get(key)
    if type(value) is not int or not low <= value <= _MOST:
        raise MalformedPayload(
            f"{key} is {reprlib.repr(value)}; expected a number from {low} to {_MOST}"
        )
    return value
