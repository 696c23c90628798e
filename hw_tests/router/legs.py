"""What each engine is sent: this and nothing else is made of a client's request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hw_tests.router.errors import RouterError

Body = dict[str, Any]

PARAMS = "kv_transfer_params"


def check(body: object) -> Body:
    """A client's request, if both legs can be made of it.

    Raises:
        RouterError: it is no JSON object, or has several prompts. An engine answers those with the
            transfer parameters of the first alone, from which all of them would be decoded.
    """
    if not isinstance(body, dict):
        raise RouterError(400, f"the request is {body!r:.80}; expected a JSON object")
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int):
        raise RouterError(
            400, f"the request has {len(prompt)} prompts; send each in a request of its own"
        )
    return body


def prefill_leg(body: Mapping[str, Any], transfer_id: str) -> Body:
    """For the prefill engine: the prompt as it is, one token, one sample, no stream.

    What the engine must not get is what only a decode leg can do: ``min_tokens`` contradicts one
    token, and options of a stream are refused without one. More samples would be as many prefills
    with a hold each, of which one is read. All other keys stay, because prompts are made of them
    (chat templates, tools, media, ``cache_salt``), and both legs need the same tokens.
    """
    leg = {k: v for k, v in body.items() if k not in ("stream_options", "min_tokens")}
    leg |= {"stream": False, "n": 1, "max_tokens": 1}
    if "max_completion_tokens" in body:  # it goes before max_tokens
        leg["max_completion_tokens"] = 1
    leg[PARAMS] = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer_id}
    return leg


def decode_leg(body: Mapping[str, Any], prefill_answer: Mapping[str, Any]) -> Body:
    """For the decode engine: the client's request, with what the prefill engine returned.

    The parameters go on as they are, with keys that nobody here knows: ``hybrid`` names the hold
    without which nothing is read. An engine may return none, as MoRIIO does if the first token ends
    the answer; then the decode engine computes the prompt. What a client wrote there itself never
    reaches an engine, or clients could have anybody's blocks read.
    """
    leg = {k: v for k, v in body.items() if k != PARAMS}
    if (params := prefill_answer.get(PARAMS)) is not None:
        leg[PARAMS] = params
    return leg
