"""The name of the prompt of one of vLLM's requests."""

from __future__ import annotations

from vllm.v1.request import Request
from vllm.v1.utils import tensor_data

from connector.core.prompt import Feature, Prompt, prompt_of


def prompt_of_request(request: Request, num_tokens: int) -> Prompt:
    """The name of the prompt that the router sent.

    Args:
        request: of either leg.
        num_tokens: of the prompt, with one that this engine has dropped.
    """
    embeds = request.prompt_embeds
    if not request.mm_features and request.lora_request is None and embeds is None:
        return prompt_of(num_tokens, request.prompt_token_ids)
    features = [
        Feature(feature.identifier, feature.mm_position.offset, feature.mm_position.length)
        for feature in request.mm_features
    ]
    adapter = None if request.lora_request is None else request.lora_request.lora_name
    read = None if embeds is None else tensor_data(embeds[: num_tokens - 1])
    return prompt_of(num_tokens, request.prompt_token_ids, features, adapter, read)
