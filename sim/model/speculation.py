"""Speculative decoding: what a scenario says about it, and what its drafter guesses.

A draft is right with a fixed probability, drawn from the prefix that it follows, provided that the
drafter read the right bytes. So the drafts that a request should see accepted are a function of its
prompt alone, which is `accepted_drafts`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy.typing as npt

from sim.model.content import mixed, next_prefix_hash, next_token, prefix_hashes

Method = Literal["mtp", "dspark"]
MAX_DRAFTS = 32
HAND_OFF_REACH = 8
"""How far behind a row of its cache that belongs to another continuation the drafter's guesses are
still wrong, in tokens. A real drafter feels one odd row less the farther away it is."""
_DRAW = 0x5EC0DE


class Speculation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A drafter that shares the model's KV cache groups, with vLLM's names."""

    method: Method
    num_speculative_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_DRAFTS)] = 1
    acceptance_per_mille: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 700
    """How many of a thousand drafts are right, if all drafts before them are."""

    @property
    def lookahead(self) -> int:
        """How many tokens after its own the entry of a token in the drafter's cache depends on.

        MTP combines what the model knows of a token with the token that follows it. DSpark stores
        what the model knows alone (``SpeculativeConfig.needs_eagle_block_drop``).
        """
        return 1 if self.method == "mtp" else 0


def draft_token(prefix_hash: int, deviation: int, vocab_size: int, acceptance: int) -> int:
    """What the drafter thinks comes after a prefix.

    Args:
        prefix_hash: of the prefix, drafts included.
        deviation: 0 if everything the drafter read was right, else a digest of what it read; the
            draft is wrong then.
        vocab_size: tokens are below it.
        acceptance: of a thousand prefixes, how many it gets right.
    """
    is_right = mixed(prefix_hash ^ _DRAW) % 1000 < acceptance
    return next_token(prefix_hash, deviation or int(not is_right), vocab_size)


def accepted_drafts(
    prompt: npt.ArrayLike,
    count: int,
    vocab_size: int,
    speculation: Speculation,
    odd_row: int | None = None,
) -> list[int]:
    """Of each step after the first token, how many drafts the model generates itself.

    Args:
        prompt: token ids, at least one.
        count: tokens to generate; drafts behind the last one count as far as they were verified.
        vocab_size: tokens are below it.
        speculation: how the drafter guesses.
        odd_row: position in the drafter's cache of a row of another continuation.
    """
    hashes = prefix_hashes(prompt)
    length, prefix = len(hashes), int(hashes[-1])
    counts: list[int] = []
    prefix, length, generated = _after_token(prefix, length, vocab_size), length + 1, 1
    while generated < count:
        is_odd = odd_row is not None and length - odd_row <= HAND_OFF_REACH
        accepted, drafted = 0, prefix
        for _ in range(speculation.num_speculative_tokens):
            rate = 0 if is_odd else speculation.acceptance_per_mille
            draft = draft_token(drafted, 0, vocab_size, rate)
            if draft != next_token(drafted, 0, vocab_size):
                break
            accepted += 1
            drafted = next_prefix_hash(drafted, length + accepted - 1, draft)
        counts.append(accepted)
        for _ in range(accepted + 1):
            prefix, length = _after_token(prefix, length, vocab_size), length + 1
        generated += accepted + 1
    return counts


def after_hand_off(prefix_hash: int, length: int, vocab_size: int) -> int:
    """Hash of the prefix with the token that a producer samples after its first ``length`` tokens.

    The producer of a hybrid hand-off computes a prompt without its last token. So it makes the
    drafter's last row from the token that it sampled, and not from the prompt's last one.
    """
    return _after_token(prefix_hash, length, vocab_size)


def _after_token(prefix: int, length: int, vocab_size: int) -> int:
    return next_prefix_hash(prefix, length, next_token(prefix, 0, vocab_size))
