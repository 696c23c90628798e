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


def promise(num_prompt: int, local_hit: int, mode: LoadMode, *, is_refused: bool) -> Answer:
    """Promise everything but the last prompt token, which the consumer computes itself.

    A load that is refused beforehand is answered as an asynchronous one, because only those can
    be reported failed for a single request. With nothing left to promise vLLM would start a load
    after the forward pass, so there is none: the request goes on with what is cached here.
    """
    num_tokens = max(num_prompt - 1 - local_hit, 0)
    return Answer(num_tokens, num_tokens > 0 and (mode == "async" or is_refused))


def span_of(num_prompt: int, local_hit: int, num_external: int) -> Span:
    """What vLLM made of the promise: its own count decides, not ours."""
    return Span(local_hit=local_hit, promised=local_hit + num_external, prompt=num_prompt)
