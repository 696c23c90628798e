"""Two engines interleave inside every hook of the connector, and neither sees the other's state."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from sim.run import TestBed, run
from sim.scenario import Scenario, UniformWorkload

# A connector like any other person's: it inherits upstream's and, in every hook that vLLM calls,
# gives way to everybody else and then looks at the state that vLLM and upstream keep in globals.
INTERLEAVING = """
import time
import vllm.distributed.kv_transfer.kv_transfer_state as state
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common import ROLE, get_role
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector import MoRIIOConnector
from vllm.distributed.parallel_state import get_tp_group, get_world_group
from vllm.forward_context import is_forward_context_available

SEEN = {}
HOOKS = (
    "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta",
    "request_finished_all_groups", "on_new_request", "update_connector_output",
    "register_kv_caches", "handle_preemptions", "bind_connector_metadata", "start_load_kv",
    "wait_for_save", "get_transfer_results", "get_block_ids_with_load_errors",
    "clear_connector_metadata",
)


def look(self):
    return (
        get_role(), state._KV_CONNECTOR_AGENT, get_tp_group(), get_world_group(),
        is_forward_context_available(),
    )


def interleaved(name):
    inherited = getattr(MoRIIOConnector, name)

    def hook(self, *args, **kwargs):
        before = look(self)
        for _ in range(3):
            time.sleep(0.0001)
        assert look(self) == before, (name, before, look(self))
        wanted = ROLE.PRODUCER if self.kv_transfer_config.is_kv_producer else ROLE.CONSUMER
        if get_role() is not ROLE.NOTINIT:
            assert get_role() is wanted, (name, get_role())
        SEEN[name] = SEEN.get(name, 0) + 1
        result = inherited(self, *args, **kwargs)
        time.sleep(0.0001)
        assert look(self)[2:] == before[2:], name
        return result

    return hook


class Interleaving(MoRIIOConnector):
    def shutdown(self):
        pass


for _name in HOOKS:
    setattr(Interleaving, _name, interleaved(_name))
"""


@pytest.mark.parametrize("perturb", [False, True])
def test_two_engines_interleave_inside_every_hook(
    perturb: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Role, connector agent, parallel groups and forward context are each process's own."""
    (tmp_path / "interleaving.py").write_text(textwrap.dedent(INTERLEAVING))
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario = Scenario(
        connector="interleaving:Interleaving",
        extra_config={"read_mode": "true", "http_port": 8000},
        perturb=perturb,
        workload=UniformWorkload(
            requests=4, prompt_tokens=(60, 90), output_tokens=(5, 5), interval_ms=2.0
        ),
    )
    beds: list[TestBed] = []
    assert run(scenario, prepare=beds.append).outcome.violations == []
    hooks_seen = {e.name: e.core.load("interleaving").SEEN for e in beds[0].engines}
    assert "interleaving" not in sys.modules
    everywhere = {"build_connector_meta", "start_load_kv", "get_transfer_results", "wait_for_save"}
    assert all(everywhere <= set(seen) for seen in hooks_seen.values())
    assert len(set.union(*map(set, hooks_seen.values()))) == 14
