"""Which settings of a connector seeds are drawn with."""

from __future__ import annotations

import msgspec

from faults.campaign.swarm import SwarmOptions, scenario_of
from faults.mutants.catalog import MUTANTS

OPTIONS = SwarmOptions()
HYBRID = SwarmOptions(connector="hybrid")


def test_some_seeds_wait_in_the_step_for_their_loads() -> None:
    """Where there is a choice and nobody has made it, and only as vLLM can serve that; what is
    drawn besides stays. MoRIIO always does, and mutants are measured without."""
    seeds = [scenario_of(seed, HYBRID) for seed in range(300)]
    synchronous = [s for s in seeds if s.extra_config.get("load_mode") == "sync"]
    assert 25 < len(synchronous) < 65
    policies = {(s.engine.async_scheduling, s.engine.kv_load_failure_policy) for s in synchronous}
    assert policies == {(True, "fail"), (False, "fail"), (False, "recompute")}
    plain = msgspec.structs.replace(HYBRID, sync_share=0.0)
    for scenario in synchronous:
        bare = scenario_of(scenario.seed, plain)
        assert (scenario.workload, scenario.faults) == (bare.workload, bare.faults)
    decided = msgspec.structs.replace(HYBRID, settings={"extra_config.load_mode": "async"})
    for options in (OPTIONS, MUTANTS["no-fence"].options(None), decided):
        modes = {scenario_of(seed, options).extra_config.get("load_mode") for seed in range(100)}
        assert "sync" not in modes


def test_some_seeds_have_other_settings_of_the_connector() -> None:
    """Those that mori.io has for its queues; what is drawn besides stays, and what is set, too."""
    keys = {"qp_per_transfer", "num_workers", "post_batch_size"}
    for connector in ("moriio", "hybrid"):
        options = SwarmOptions(connector=connector)
        seeds = [scenario_of(seed, options) for seed in range(300)]
        tuned = [s for s in seeds if keys & s.extra_config.keys()]
        assert 20 < len(tuned) < 60
        assert {key for s in tuned for key in s.extra_config} >= keys
        bare = msgspec.structs.replace(options, tuned_share=0.0)
        for scenario in tuned:
            without = scenario_of(scenario.seed, bare)
            rest = {k: v for k, v in scenario.extra_config.items() if k not in keys}
            assert msgspec.structs.replace(scenario, extra_config=rest) == without
        decided = msgspec.structs.replace(options, settings={"extra_config.qp_per_transfer": "8"})
        pairs = {scenario_of(seed, decided).extra_config["qp_per_transfer"] for seed in range(100)}
        assert len(pairs) == 1
