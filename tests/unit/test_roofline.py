from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import roofline
from sim.engine.options import EngineOptions, pass_times_of
from sim.engine.roofline import Accelerator, RooflineTimes, named_accelerator
from sim.engine.timing import StepTimes
from sim.engine.work import work_of
from sim.errors import UsageError
from sim.model.presets import get_preset
from sim.model.weights import Weights
from sim.scenario import load, loads
from sim.units import US

MI300X = named_accelerator("mi300x")
FLOPS = MI300X.flops_per_ns * MI300X.compute_efficiency
BYTES = MI300X.memory_bytes_per_ns * MI300X.memory_efficiency
KNOWN = ("llama", "gemma-swa", "deepseek-mla", "kimi-linear")


def times(model: str = "llama", tp_size: int = 1) -> RooflineTimes:
    executor = "single-process" if tp_size == 1 else "multi-process"
    options = EngineOptions(tp_size=tp_size, executor=executor, accelerator="mi300x")
    found = pass_times_of(options, get_preset(model))
    assert isinstance(found, RooflineTimes)
    return found


def test_a_decode_takes_as_long_as_reading_the_weights_and_the_cache() -> None:
    """Llama 8B: 16.06 GB of weights, and 131,072 bytes for each token of context in 32 layers."""
    span = (9_999, 10_000)
    weights_ns, cache_ns = 8.03e9 * 2 / BYTES, (10_000 + 1) * 131_072 / BYTES
    assert times().linear_ns([span]) == pytest.approx(weights_ns)
    assert times().attention_ns([span]) == pytest.approx(cache_ns)
    assert times().forward_ns([span]) == round(MI300X.pass_us * US + weights_ns + cache_ns)


def test_a_prefill_takes_as_long_as_its_arithmetic() -> None:
    """2 operations a parameter and token; 4 x 128 for each head and each pair of tokens."""
    tokens = 8_192
    attention = 32 * 32 * 4 * 128 * tokens * (tokens + 1) / 2
    assert times().linear_ns([(0, tokens)]) == pytest.approx(2 * 8.03e9 * tokens / FLOPS)
    assert times().attention_ns([(0, tokens)]) == pytest.approx(attention / FLOPS)


@pytest.mark.parametrize("model", KNOWN)
def test_decodes_wait_for_memory_and_prefills_for_arithmetic(model: str) -> None:
    """More memory bandwidth makes the one faster, more arithmetic the other, and not else."""
    base = times(model)
    quick_memory, quick_arithmetic = (
        msgspec.structs.replace(base.accelerator, **{rate: 1e9})
        for rate in ("memory_bytes_per_ns", "flops_per_ns")
    )
    for span, limit, other in (
        ((4_095, 4_096), quick_memory, quick_arithmetic),
        ((0, 32_768), quick_arithmetic, quick_memory),
    ):
        linear = base.linear_ns([span])
        assert _with(base, other).linear_ns([span]) == linear
        assert _with(base, limit).linear_ns([span]) < linear


def _with(base: RooflineTimes, accelerator: Accelerator) -> RooflineTimes:
    return RooflineTimes(base.steps, accelerator, base.weights, base.work, base.tp_size)


@given(
    model=st.sampled_from(KNOWN),
    begin=st.integers(0, 100_000),
    tokens=st.integers(1, 10_000),
    more=st.integers(1, 5_000),
)
def test_more_tokens_or_more_context_never_take_less(
    model: str, begin: int, tokens: int, more: int
) -> None:
    """Nor does one more request."""
    times_of_model, span = times(model), (begin, begin + tokens)
    base = times_of_model.forward_ns([span])
    assert times_of_model.forward_ns([(begin, begin + tokens + more)]) >= base
    assert times_of_model.forward_ns([(begin + more, begin + more + tokens)]) >= base
    assert times_of_model.forward_ns([span, (0, 1)]) >= base


def test_ranks_share_the_work_and_exchange_sums() -> None:
    """Eight ranks: an eighth of everything but latents, which each has, and 2 x 7/8 of the
    activations over the links twice in each layer."""
    one, eight, spans = times(), times(tp_size=8), [(0, 1_000)]
    assert eight.linear_ns(spans) == pytest.approx(one.linear_ns(spans) / 8)
    assert eight.attention_ns(spans) == pytest.approx(one.attention_ns(spans) / 8)
    size = 1_000 * 4_096 * 2
    link = MI300X.link_bytes_per_ns * MI300X.link_efficiency
    assert eight.exchange_ns(spans) == pytest.approx(2 * 32 * 2 * 7 / 8 * size / link)
    assert one.exchange_ns(spans) == 0
    decode = [(99_999, 100_000)]
    latents = [times("deepseek-mla", tp).attention_ns(decode) for tp in (1, 8)]
    assert latents[0] == pytest.approx(latents[1])


def test_experts_are_read_if_a_token_goes_there() -> None:
    """One token reads what it uses, very many read everything, and none is read twice."""
    weights = get_preset("deepseek-mla").weights
    assert weights is not None
    assert weights.touched(1) == pytest.approx(37e9)
    assert weights.touched(10_000) == pytest.approx(671e9)
    two = 37e9 + (671e9 - 37e9) * 8 / 256  # of 248 other experts, an expected 8 x 248 / 256
    assert weights.touched(2) == pytest.approx(two)


def test_a_window_bounds_what_is_read_and_compared() -> None:
    """Beyond 1,024 tokens a decode of Gemma reads more in 8 of 48 layers only."""
    attention = times("gemma-swa").attention_ns
    per_token = 2 * 8 * 256 * 2 / BYTES
    grown = attention([(9_999, 10_000)]) - attention([(4_999, 5_000)])
    assert grown == pytest.approx(5_000 * 8 * per_token)


def test_a_recurrent_layer_does_not_mind_the_context() -> None:
    """Of Kimi Linear 20 of 27 layers: its state is read and written, whatever came before."""
    states = [(layer, n) for layer, n in work_of("kimi-linear", 1).layers if layer.state_bytes]
    ((layer, count),) = states
    assert count == 20
    assert layer.bytes_moved((0, 1)) == layer.bytes_moved((99_999, 100_000)) > 0
    assert layer.flops((0, 1)) == layer.flops((99_999, 100_000)) > 0


def test_a_slow_engine_is_slow_in_all_it_does() -> None:
    """As with times that are not computed."""
    for base in (times(), StepTimes()):
        slow, spans = base.scaled(3.0), [(0, 100), (10, 11)]
        assert slow.forward_ns(spans) == pytest.approx(3 * base.forward_ns(spans), abs=2)
        assert (slow.host_ns, slow.draft_ns(2)) == (3 * base.host_ns, 3 * base.draft_ns(2))


def test_an_accelerator_of_ones_own_is_part_of_the_scenario(tmp_path: Path) -> None:
    """A file beside the scenario's; what it says of weights counts more than the preset."""
    text = Path(roofline.__file__).with_name("accelerators").joinpath("mi300x.toml").read_text()
    (tmp_path / "my.toml").write_text(f"{text}\n[weights]\nparameters = 30e9\n")
    (tmp_path / "s.yaml").write_text("model: qwen-hybrid\nengine: {accelerator: my.toml}\n")
    scenario = load(tmp_path / "s.yaml")
    accelerator = scenario.engine.accelerator
    assert isinstance(accelerator, Accelerator)
    assert accelerator.weights == Weights(parameters=30e9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engine: {accelerator: mi300}", r"engine\.accelerator: no accelerator 'mi300' \(did you"),
        ("engine: {accelerator: no.toml}", r"engine\.accelerator: no\.toml: cannot be read"),
        ("{model: qwen-hybrid, engine: {accelerator: mi300x}}", r"weights of qwen-hybrid are not"),
    ],
)
def test_what_is_not_known_is_refused(text: str, said: str) -> None:
    """With the key, and what to do."""
    with pytest.raises(UsageError, match=said):
        loads(text)


@pytest.mark.parametrize(
    "weights",
    [
        {"parameters": 1e9, "active_parameters": 2e9},
        {"parameters": 2e9, "active_parameters": 1e9},
        {"parameters": 2e9, "experts": 8, "experts_per_token": 2},
        {"parameters": 2e9, "active_parameters": 1e9, "experts": 8, "experts_per_token": 8},
    ],
)
def test_weights_that_contradict_themselves_are_refused(weights: dict[str, float]) -> None:
    """All of these would give a time that means nothing."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(weights, Weights)
