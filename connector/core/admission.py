"""What the consumer tells vLLM when it asks how many tokens come from outside."""

from __future__ import annotations

from typing import NamedTuple

from connector.core.pairing import LoadMode, Span


class Answer(NamedTuple):
    """The two values of ``get_num_new_matched_tokens``.

    Args:
        num_tokens: beyond the local hit.
        is_async: whether the request waits until the connector reports the load.
    """

    num_tokens: int
    is_async: bool


NOTHING = Answer(0, False)
STATE_ALONE = Answer(1, True)
"""For a prompt of which only the state has to come: the one token that makes vLLM wait for it.

With 0 tokens vLLM loads after the forward pass, and 1 synchronous token would leave it nothing to
schedule, which it asserts (v1/core/sched/scheduler.py:1347). After an asynchronous load of the
whole prompt it takes the last token back and computes it (:3515)."""


def promise(
    num_prompt: int, local_hit: int, mode: LoadMode, *, is_refused: bool, lacks_state: bool = False
) -> Answer:
    """Promise everything but the last prompt token, which the consumer computes itself.

    A load that is refused beforehand is answered as an asynchronous one, because only those can
    be reported failed for a single request. With nothing left to promise vLLM would start a load
    after the forward pass, so there is none: the request goes on with what is cached here.

    Args:
        num_prompt: tokens of the prompt.
        local_hit: tokens of it that vLLM found here.
        mode: how this consumer loads.
        is_refused: whether the producer's offer cannot be used.
        lacks_state: whether the hit reaches the last token without a state to go on from.
    """
    num_tokens = max(num_prompt - 1 - local_hit, 0)
    if num_tokens == 0:
        return STATE_ALONE if lacks_state and not is_refused else NOTHING
    return Answer(num_tokens, mode == "async" or is_refused)


def span_of(num_prompt: int, local_hit: int, num_external: int) -> Span:
    """What vLLM made of the promise: its own count decides, not ours."""
    return Span(local_hit=local_hit, promised=local_hit + num_external, prompt=num_prompt)
