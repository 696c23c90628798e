"""Random scenarios for property tests."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from sim.engine.options import EngineOptions
from sim.router.options import COLOCATED_PHASES, Abort, Hold, Phase, Retry, RouterOptions
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    TraceWorkload,
    UniformWorkload,
)
from sim.workload import Segment

counts = st.integers(1, 10**6)
sizes, widths = st.integers(1, 8), st.integers(1, 64)
"""Of topologies and tensor parallelism, as far as a run has devices for all of them at once."""
optional_counts = st.none() | counts
seconds = st.floats(0, 1e9)
factors = st.floats(0, 1e9, exclude_min=True)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False)
plain = st.none() | st.booleans() | numbers | names
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
ranges = st.tuples(counts, counts).map(lambda pair: (min(pair), max(pair)))
inline_requests = st.builds(
    InlineRequest,
    request_id=names,
    prompt=st.lists(st.builds(Segment, st.integers(-10, 10), counts), min_size=1, max_size=3).map(
        tuple
    ),
    max_tokens=counts,
    arrival_s=seconds,
)
workloads = st.one_of(
    st.builds(
        TraceWorkload,
        path=names,
        requests=optional_counts,
        length_scale=factors,
        time_scale=factors,
        max_prompt_tokens=optional_counts,
        max_output_tokens=optional_counts,
    ),
    st.builds(
        GeneratedWorkload,
        requests=counts,
        rate_rps=factors,
        shared_prefix_share=st.floats(0, 0.8),
        length_scale=factors,
        max_prompt_tokens=optional_counts,
        max_output_tokens=optional_counts,
    ),
    st.builds(UniformWorkload, requests=counts, prompt_tokens=ranges, output_tokens=ranges),
    st.lists(
        inline_requests, min_size=1, max_size=3, unique_by=lambda request: request.request_id
    ).map(lambda requests: InlineWorkload(tuple(requests))),
)


def routers(
    phases: tuple[Phase, ...], consumers: tuple[str, ...], max_holds: int
) -> st.SearchStrategy[RouterOptions]:
    """Options that a topology with these phases and choices of a consumer accepts."""
    aborts = st.builds(lambda name, at: Abort(name, at_s=at), names, seconds) | st.builds(
        lambda name, phase: Abort(name, on_phase=phase), names, st.sampled_from(phases)
    )
    retries = st.builds(Retry, names, seconds, st.booleans(), st.sampled_from(consumers))
    holds = st.lists(
        st.builds(Hold, names, seconds), max_size=max_holds, unique_by=lambda hold: hold.request
    )
    return st.builds(
        RouterOptions,
        hand_off_latency_us=st.integers(0, 10**6),
        holds=holds.map(tuple),
        aborts=st.lists(aborts, max_size=2).map(tuple),
        retries=st.lists(retries, max_size=2).map(tuple),
    )


engines = st.builds(
    lambda tp_size, executor, **options: EngineOptions(
        tp_size=tp_size if executor == "multi-process" else 1, executor=executor, **options
    ),
    tp_size=widths,
    executor=st.sampled_from(["single-process", "multi-process"]),
    async_scheduling=st.booleans(),
    kv_load_failure_policy=st.sampled_from(["fail", "recompute"]),
    num_blocks=optional_counts,
)
places = (
    st.tuples(st.just(Topology(colocated=True)), routers(COLOCATED_PHASES, ("same",), 0))
    | st.tuples(st.builds(Topology, sizes), routers(get_args(Phase), ("same",), 2))
    | st.tuples(
        st.builds(Topology, sizes, st.integers(2, 8)),
        routers(get_args(Phase), ("same", "other"), 2),
    )
)
scenarios = st.builds(
    lambda place, **rest: Scenario(topology=place[0], router=place[1], **rest),
    place=places,
    seed=st.integers(0, 2**63 - 1),
    model=st.sampled_from(["llama", "deepseek-mla"]),
    geometry=st.sampled_from(["reduced", "real"]),
    connector=st.sampled_from(["moriio", "some.module:Connector"]),
    extra_config=st.dictionaries(names, anything, max_size=4),
    overlay=st.none() | names,
    engine=engines,
    workload=workloads,
    network_latency_us=st.integers(0, 10**6),
    perturb=st.booleans(),
    check=st.sampled_from(["incremental", "full"]),
    quiet_phase_s=seconds,
    max_virtual_s=factors,
)
