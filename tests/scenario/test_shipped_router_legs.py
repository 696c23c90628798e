"""What the shipped router tells engines, told to vLLM itself and to both connectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from hw_tests.router.legs import PARAMS, decode_leg, prefill_leg
from sim.run import TestBed, run
from sim.scenario import Scenario, UniformWorkload, with_settings
from sim.scenario.workloads import EPILOGUE

TRANSFER = "tx-0123"
RETURNED = {"do_remote_prefill": True, "remote_block_ids": [[1]], "hybrid": {"hold": 2**60}}
PROMPTS = {
    "completion": {"prompt": "some text"},
    "chat": {"messages": [{"role": "user", "content": "some text"}], "max_completion_tokens": 40},
}


def request_type(api: str) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    return {"completion": CompletionRequest, "chat": ChatCompletionRequest}[api]


@pytest.mark.parametrize("api", PROMPTS)
def test_vllm_accepts_both_legs_of_a_request_with_every_option_that_could_contradict(
    api: str,
) -> None:
    """Its own request types: the prefill leg asks for one token of one sample without a stream, the
    decode leg for what the client asked."""
    body = PROMPTS[api] | {
        "model": "m",
        "max_tokens": 40,
        "min_tokens": 5,
        "n": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    parse = request_type(api).model_validate
    prefill = parse(prefill_leg(body, TRANSFER))
    assert (prefill.stream, prefill.stream_options) == (False, None)
    assert prefill.max_tokens == 1 == (getattr(prefill, "max_completion_tokens", None) or 1)
    sampling = prefill.to_sampling_params(1, {})
    assert (sampling.n, sampling.max_tokens, sampling.min_tokens) == (1, 1, 0)
    assert sampling.extra_args[PARAMS]["do_remote_decode"] is True
    assert sampling.extra_args[PARAMS]["transfer_id"] == TRANSFER

    decode = parse(decode_leg(body, {PARAMS: RETURNED}))
    sampling = decode.to_sampling_params(40, {})
    assert (sampling.n, sampling.max_tokens, sampling.min_tokens) == (3, 40, 5)
    assert sampling.extra_args[PARAMS] == RETURNED


@pytest.mark.parametrize(("model", "connector"), [("glm-flash", "hybrid"), ("llama", "moriio")])
def test_connectors_load_with_what_the_shipped_router_says_and_passes_on(
    model: str, connector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through JSON, as over HTTP, and without anything that only the simulated router adds: each
    request loads what its prefill computed."""

    def passed_on(returned: Mapping[str, Any], *, producer_tp_size: int) -> Any:
        return decode_leg({}, json.loads(json.dumps({PARAMS: returned})))[PARAMS]

    monkeypatch.setattr("sim.router.router.prefill_params", lambda t: prefill_leg({}, t)[PARAMS])
    monkeypatch.setattr("sim.router.router.decode_params", passed_on)
    beds: list[TestBed] = []
    workload = UniformWorkload(requests=2, prompt_tokens=(700, 700), output_tokens=(3, 3))
    scenario = with_settings(Scenario(model=model, workload=workload), {"connector": connector})
    assert run(scenario, prepare=beds.append).outcome.violations == []
    results = beds[0].router.results.items()
    loaded = [result.remote_cached_tokens for name, result in results if EPILOGUE not in name]
    assert len(loaded) == 2
    assert set(loaded) <= {699, 700}
