from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

import pytest
from kv_planning import plan_preset

from sim.errors import UsageError
from sim.model.config import build_vllm_config
from sim.model.presets import GEOMETRIES, PRESETS, Geometry, get_preset
from sim.model.speculation import Speculation

MORIIO = {
    "kv_connector": "MoRIIOConnector",
    "kv_connector_extra_config": {"host_ip": "10.0.0.1", "read_mode": "true", "nested": []},
}
every_preset = pytest.mark.parametrize("name", PRESETS)
PLAIN = [name for name, preset in PRESETS.items() if preset.sizes("real").indexer is None]
"""Whose groups have layers of one kind each; see test_model_glm.py for the others."""
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES)
tp_1_and_2 = pytest.mark.parametrize("tp_size", [1, 2])


def build(name: str = "llama", **options: Any) -> Any:
    """A configuration with few blocks and short requests, unless told otherwise."""
    defaults: dict[str, Any] = {"num_blocks": 100, "max_model_len": 1024}
    return build_vllm_config(get_preset(name), **(defaults | options))


GROUPS = {
    ("deepseek-mla", "reduced", 1): ["3 x MLAAttentionSpec, 64 tokens, 4608 B"],
    ("deepseek-mla", "reduced", 2): ["3 x MLAAttentionSpec, 64 tokens, 4608 B"],
    ("deepseek-mla", "real", 1): ["61 x MLAAttentionSpec, 64 tokens, 73728 B"],
    ("deepseek-mla", "real", 2): ["61 x MLAAttentionSpec, 64 tokens, 73728 B"],
    ("gemma-swa", "reduced", 1): [
        *["2 x SlidingWindowSpec, 16 tokens, 1024 B"] * 5,
        "2 x FullAttentionSpec, 16 tokens, 1024 B",
    ],
    ("gemma-swa", "reduced", 2): [
        *["2 x SlidingWindowSpec, 16 tokens, 512 B"] * 5,
        "2 x FullAttentionSpec, 16 tokens, 512 B",
    ],
    ("gemma-swa", "real", 1): [
        *["8 x SlidingWindowSpec, 16 tokens, 131072 B"] * 5,
        "8 x FullAttentionSpec, 16 tokens, 131072 B",
    ],
    ("gemma-swa", "real", 2): [
        *["8 x SlidingWindowSpec, 16 tokens, 65536 B"] * 5,
        "8 x FullAttentionSpec, 16 tokens, 65536 B",
    ],
    ("kimi-linear", "reduced", 1): [
        *["2 x MambaSpec, 128 tokens, 4352 of 5120 B"] * 2,
        "1 x MambaSpec, 128 tokens, 4352 of 5120 B",
        "2 x MLAAttentionSpec, 128 tokens, 5120 B",
    ],
    ("kimi-linear", "reduced", 2): [
        *["2 x MambaSpec, 128 tokens, 2176 of 5120 B"] * 2,
        "1 x MambaSpec, 128 tokens, 2176 of 5120 B",
        "2 x MLAAttentionSpec, 128 tokens, 5120 B",
    ],
    ("kimi-linear", "real", 1): [
        *["7 x MambaSpec, 1920 tokens, 2170880 of 2211840 B"] * 2,
        "6 x MambaSpec, 1920 tokens, 2170880 of 2211840 B",
        "7 x MLAAttentionSpec, 1920 tokens, 2211840 B",
    ],
    ("kimi-linear", "real", 2): [
        *["7 x MambaSpec, 1024 tokens, 1085440 of 1179648 B"] * 2,
        "6 x MambaSpec, 1024 tokens, 1085440 of 1179648 B",
        "7 x MLAAttentionSpec, 1024 tokens, 1179648 B",
    ],
    ("llama", "reduced", 1): ["4 x FullAttentionSpec, 16 tokens, 1024 B"],
    ("llama", "reduced", 2): ["4 x FullAttentionSpec, 16 tokens, 512 B"],
    ("llama", "real", 1): ["32 x FullAttentionSpec, 16 tokens, 65536 B"],
    ("llama", "real", 2): ["32 x FullAttentionSpec, 16 tokens, 32768 B"],
    ("qwen-hybrid", "reduced", 1): [
        *["2 x MambaSpec, 48 tokens, 3584 of 3840 B"] * 3,
        "2 x FullAttentionSpec, 48 tokens, 3840 B",
    ],
    ("qwen-hybrid", "reduced", 2): [
        *["2 x MambaSpec, 48 tokens, 1792 of 1920 B"] * 3,
        "2 x FullAttentionSpec, 48 tokens, 1920 B",
    ],
    ("qwen-hybrid", "real", 1): [
        *["12 x MambaSpec, 1056 tokens, 2146304 of 2162688 B"] * 3,
        "12 x FullAttentionSpec, 1056 tokens, 2162688 B",
    ],
    ("qwen-hybrid", "real", 2): [
        *["12 x MambaSpec, 1056 tokens, 1073152 of 1081344 B"] * 3,
        "12 x FullAttentionSpec, 1056 tokens, 1081344 B",
    ],
}


def describe(group: Any) -> str:
    spec = group.kv_cache_spec
    page = spec.page_size_bytes
    size = (
        f"{page}" if page == spec.real_page_size_bytes else f"{spec.real_page_size_bytes} of {page}"
    )
    layers = f"{len(group.layer_names)} x {type(spec).__name__}"
    return f"{layers}, {spec.block_size} tokens, {size} B"


@pytest.mark.parametrize("name", PLAIN)
@every_geometry
@tp_1_and_2
@pytest.mark.parametrize("is_caching", [True, False])
def test_vllm_plans_these_groups_with_exactly_the_blocks_asked_for(
    name: str, geometry: Geometry, tp_size: int, is_caching: bool
) -> None:
    """The same on every rank and in the scheduler, in this order; a state of an engine without
    prefix caching is one for the whole request. A preset that GROUPS does not list is checked
    for everything but the sizes of its groups."""
    workers, scheduler, layout = plan_preset(
        name,
        geometry=geometry,
        tp_size=tp_size,
        num_blocks=1234,
        enable_prefix_caching=is_caching,
    )
    preset = get_preset(name)
    tokens = preset.tokens_per_block(tp_size, geometry)
    expected = GROUPS.get((name, geometry, tp_size))
    if expected is not None and not is_caching:
        whole = f"MambaSpec, {2 * tokens} tokens"
        expected = [line.replace(f"MambaSpec, {tokens} tokens", whole) for line in expected]
    assert layout.name == preset.supported_layouts[0]
    assert len(workers) == tp_size
    for config in (*workers, scheduler):
        assert config.num_blocks == 1234
        assert len(config.kv_cache_groups) == preset.num_groups
        if expected is not None:
            assert [describe(group) for group in config.kv_cache_groups] == expected
        layers = sum(len(group.layer_names) for group in config.kv_cache_groups)
        assert layers == preset.sizes(geometry).num_layers
        assert config.needs_kv_cache_zeroing == preset.is_hybrid
    largest = max(len(group.layer_names) for group in scheduler.kv_cache_groups)
    page = scheduler.kv_cache_groups[-1].kv_cache_spec.page_size_bytes
    assert {t.size for t in workers[0].kv_cache_tensors} == {1234 * page * largest}


def test_the_reduced_sizes_and_the_true_ones() -> None:
    """126,000 tokens of a reduced model fit in 32 MB a rank; the true sizes are the models'."""
    sizes = {
        (name, geometry): int(PRESETS[name].bytes_per_token(1, geometry))
        for name in PRESETS
        for geometry in GEOMETRIES
    }
    assert max(size for (_, geometry), size in sizes.items() if geometry == "reduced") <= 1024
    assert sizes == sizes | {
        ("llama", "reduced"): 256,
        ("llama", "real"): 32 * 8 * 2 * 128 * 2,
        ("deepseek-mla", "reduced"): 216,
        ("deepseek-mla", "real"): 61 * 576 * 2,
        ("gemma-swa", "reduced"): 768,
        ("gemma-swa", "real"): 48 * 8 * 2 * 256 * 2,
        ("glm-flash", "reduced"): 150,
        ("glm-flash", "real"): 45 * 512 * 2 + 11 * 132 // 4,
        ("glm-flash-nospec", "reduced"): 150,
        ("glm-flash-nospec", "real"): 45 * 512 * 2 + 11 * 132 // 4,
        ("glm-kpool16-nospec", "reduced"): 181,
        ("glm-kpool16-nospec", "real"): 45 * 512 * 2 + 11 * 132 // 16,
        ("kimi-linear", "reduced"): 280,
        ("kimi-linear", "real"): 27 * 576 * 2,
        ("qwen-hybrid", "reduced"): 640,
        ("qwen-hybrid", "real"): 48 * 2 * 2 * 256 * 2,
    }


@every_geometry
def test_heads_are_split_over_ranks_and_a_latent_is_not(geometry: Geometry) -> None:
    """Grouped-query heads are divided by tp_size; every rank has all of a latent cache."""
    llama, latent = get_preset("llama"), get_preset("deepseek-mla")
    assert llama.bytes_per_token(2, geometry) * 2 == llama.bytes_per_token(1, geometry)
    assert latent.bytes_per_token(2, geometry) == latent.bytes_per_token(1, geometry)
    assert [llama.kv_heads_of_rank(2, rank, geometry) for rank in (0, 1)] == [
        range(4),
        range(4, 8),
    ]
    assert [latent.kv_heads_of_rank(2, rank, geometry) for rank in (0, 1)] == [range(1)] * 2


def test_ranks_beyond_the_heads_hold_copies() -> None:
    """With 16 ranks and 8 heads, neighbours share a head, as in vLLM's own split."""
    llama = get_preset("llama")
    assert [llama.kv_heads_of_rank(16, rank) for rank in range(4)] == [
        range(1), range(1), range(1, 2), range(1, 2)
    ]  # fmt: skip
    assert llama.bytes_per_token(16) == llama.bytes_per_token(8)


@every_preset
@every_geometry
@tp_1_and_2
def test_the_specs_agree_with_what_the_model_config_says(
    name: str, geometry: Geometry, tp_size: int
) -> None:
    """Connectors size their transfers by the model config, so it must tell the same story."""
    config = build(name, geometry=geometry, tp_size=tp_size)
    specs = get_preset(name).layer_specs(tp_size, geometry, config)
    model, parallel = config.model_config, config.parallel_config
    of_layers = {n: spec for n, spec in specs.items() if ".indexer." not in n}
    assert len(of_layers) == model.get_num_layers(parallel)
    attention = [spec for spec in of_layers.values() if hasattr(spec, "num_kv_heads")]
    assert attention
    for spec in attention:
        assert spec.num_kv_heads == model.get_num_kv_heads(parallel)
        assert spec.head_size == model.get_head_size()
        assert spec.dtype == model.dtype
    assert model.use_mla == ("MLA" in get_preset(name).attention)
    assert model.is_hybrid == (len(attention) < len(of_layers)) == get_preset(name).is_hybrid


@every_preset
@pytest.mark.parametrize("is_async", [True, False])
def test_the_engine_runs_as_in_production(name: str, is_async: bool) -> None:
    """What vLLM's CPU platform turns off is on again, whatever the host's CPU is."""
    config = build(name, async_scheduling=is_async, max_num_batched_tokens=512, max_num_seqs=32)
    scheduler = config.scheduler_config
    scheduler_class = scheduler.get_scheduler_cls().__name__
    assert scheduler_class == ("AsyncScheduler" if is_async else "Scheduler")
    assert config.max_concurrent_batches == (2 if is_async else 1)
    assert config.use_v2_model_runner
    assert not scheduler.disable_hybrid_kv_cache_manager
    assert scheduler.enable_chunked_prefill
    assert (scheduler.max_num_batched_tokens, scheduler.max_num_seqs) == (512, 32)
    assert config.cache_config.enable_prefix_caching
    assert config.cache_config.block_size == get_preset(name).tokens_per_block()


@every_preset
def test_options_that_are_turned_off_stay_off(name: str) -> None:
    """Putting production's values back does not overrule the caller."""
    config = build(name, enable_prefix_caching=False, enable_chunked_prefill=False)
    assert not config.cache_config.enable_prefix_caching
    assert not config.scheduler_config.enable_chunked_prefill


def test_the_connector_is_passed_on_in_copies() -> None:
    """Two engines of one process do not share what a connector writes into its options."""
    first, second = (
        build(
            connector=MORIIO,
            kv_role=role,
            kv_load_failure_policy="recompute",
            engine_id=role,
        )
        for role in ("kv_producer", "kv_consumer")
    )
    first.kv_transfer_config.kv_connector_extra_config["nested"].append(1)
    assert second.kv_transfer_config.kv_connector_extra_config == {
        "host_ip": "10.0.0.1",
        "read_mode": "true",
        "nested": [],
    }
    assert (first.kv_transfer_config.engine_id, first.kv_transfer_config.is_kv_producer) == (
        "kv_producer",
        True,
    )
    assert second.kv_transfer_config.kv_load_failure_policy == "recompute"
    assert first.model_config is not second.model_config
    assert first.model_config.hf_config is not second.model_config.hf_config


def test_a_configuration_names_no_place_on_this_machine() -> None:
    """Connectors send the model's name to their peers, and runs are compared across machines."""
    assert build("deepseek-mla").model_config.model == "faultlab/deepseek-mla-reduced"
    model = build().model_config
    assert tempfile.gettempdir() not in f"{model} {model.hf_config._name_or_path}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp_size": 3}, "tp_size 3 does not fit 8 KV heads"),
        ({"name": "kimi-linear", "tp_size": 3}, "tp_size 3 does not fit 32 heads of recurrent"),
        ({"name": "kimi-linear", "enable_chunked_prefill": False}, "or turn prefix caching off"),
        ({"geometry": "huge"}, "no geometry 'huge'; use one of: reduced, real"),
        ({"connector": MORIIO}, "give both or neither"),
        ({"kv_role": "kv_producer"}, "give both or neither"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(options: dict[str, Any], message: str) -> None:
    """The message names the value and what is accepted."""
    with pytest.raises(UsageError, match=message):
        build(**options)


def test_an_unknown_model_is_an_error_that_lists_the_models() -> None:
    """A typo on the command line is answered with the names."""
    with pytest.raises(UsageError, match=r"unknown model 'lama' .*; use one of: .*llama"):
        get_preset("lama")


PROBE = """
import os, sys
before = dict(os.environ)
from sim.model.config import build_vllm_config
from sim.model.presets import PRESETS
from vllm.model_executor.models import registry
registry._run_in_subprocess = lambda function: sys.exit("a model class is being inspected")
for preset in PRESETS.values():
    build_vllm_config(preset, num_blocks=9, max_model_len=64, max_num_batched_tokens=64)
print([name for name in ("LD_PRELOAD", "LOCAL_WORLD_SIZE", "VLLM_WORKER_MULTIPROC_METHOD")
       if os.environ.get(name) != before.get(name)])
"""


def test_a_fresh_environment_needs_no_subprocess_and_is_left_alone(tmp_path: Any) -> None:
    """Nothing is inspected in a slow subprocess, and vLLM's exports do not reach later ones."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environ |= {"VLLM_CACHE_ROOT": str(tmp_path), "LOCAL_WORLD_SIZE": "7"}
    result = subprocess.run(
        [sys.executable, "-c", PROBE], env=environ, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr[-2000:]
    assert not list(tmp_path.glob("modelinfos/*"))


def test_a_wrong_environment_is_refused() -> None:
    """A setting of the caller's that would change vLLM's behaviour is named."""
    result = subprocess.run(
        [sys.executable, "-c", "import sim.model.config"],
        env={**os.environ, "VLLM_USE_V2_MODEL_RUNNER": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "VLLM_USE_V2_MODEL_RUNNER='0' is set, but runs here need '1'" in result.stderr


def test_a_drafter_with_windows_has_a_group_of_its_own() -> None:
    """vLLM leaves the model's groups as they are, and marks none as the drafter's."""
    speculation = Speculation("dspark", 3)
    workers, scheduler, _ = plan_preset("qwen-hybrid", num_blocks=100, speculation=speculation)
    drafter = get_preset("qwen-hybrid").drafter("dspark")
    for config in (*workers, scheduler):
        *of_model, own = config.kv_cache_groups
        assert set(own.layer_names) == set(drafter.layers["reduced"])
        assert own.kv_cache_spec.sliding_window == drafter.window
        assert len(of_model) == get_preset("qwen-hybrid").num_groups
        assert not any(group.is_eagle_group for group in config.kv_cache_groups)
