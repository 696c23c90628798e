"""This connector as one of several, under vLLM's own MultiConnector (R17)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from test_connector_state_alone import OFFER, request
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from connector.consumer_scheduler import ConsumerScheduler
from connector.core.groups import Group, GroupKind, TransferGroups
from connector.counters import Counters
from connector.hybrid import HybridReadConnector
from connector.metrics import HybridStats
from connector.producer_scheduler import ProducerScheduler

GROUPS = TransferGroups((Group(GroupKind.FULL, ("attn",), 16),))
BLOCKS = ([31, 32, 33],)
STEP: Any = SimpleNamespace(
    scheduled_new_reqs=[], num_scheduled_tokens={}, new_block_ids_to_zero=None
)


class Other:
    """Another connector, which finds 32 tokens of every prompt, and saves every request."""

    def get_num_new_matched_tokens(self, _request: Any, _hit: int) -> tuple[int, bool]:
        return 32, True

    def request_finished_all_groups(self, _request: Any, _blocks: Any) -> tuple[bool, None]:
        return True, None

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: None


def beside_another(half: ConsumerScheduler | ProducerScheduler) -> MultiConnector:
    """A scheduler's connector, of which only the children are made otherwise than by vLLM."""
    ours: Any = HybridReadConnector.__new__(HybridReadConnector)
    is_producer = isinstance(half, ProducerScheduler)
    ours._producer, ours._consumer = (half, None) if is_producer else (None, half)
    ours._config = SimpleNamespace(select_transfer_block_ids=lambda blocks: blocks)
    both: Any = MultiConnector.__new__(MultiConnector)
    both._connectors = [Other(), ours]
    both._requests_to_connector, both._extra_async_saves = {}, {}
    both._all_support_hma = True
    return both  # type: ignore[no-any-return]


@pytest.mark.requirement("R17")
def test_a_request_that_another_connector_loads_is_released_here() -> None:
    """Once; the report of the other's load, and of one more later, changes nothing."""
    half = ConsumerScheduler(GROUPS, "async", 1, Counters(), tuple)
    both = beside_another(half)
    leg = request({**OFFER, "remote_block_ids": [[1, 2, 3]]})
    both.on_new_request(leg)
    for expected in (1, 0):
        assert both.get_num_new_matched_tokens(leg, 0) == (32, True)
        blocks: Any = SimpleNamespace(get_block_ids=lambda: BLOCKS)
        both.update_state_after_alloc(leg, blocks, 32)
        orders: Any = both.build_connector_meta(STEP).metadata[1]
        assert (len(orders.releases), orders.loads) == (expected, [])
        output = KVConnectorOutput(finished_recving={"req-d0"})
        both.update_connector_output(output)
        assert output.finished_recving == {"req-d0"}
    both.request_finished_all_groups(leg, BLOCKS)
    assert half._remotes == {}


@pytest.mark.requirement("R17")
def test_blocks_that_another_connector_has_saved_are_freed() -> None:
    """Those of a request that this one holds as well, and of one that is no concern of it."""
    counters = Counters()
    half = ProducerScheduler(GROUPS, 60.0, {"tp_size": 1}, counters)
    both = beside_another(half)
    for name, params in (("shared", {"do_remote_decode": True}), ("other", {})):
        leg = request(params)
        leg.request_id, leg.status = name, RequestStatus.FINISHED_LENGTH_CAPPED
        both.on_new_request(leg)
        both.update_state_after_alloc(leg, None, 0)  # type: ignore[arg-type]
        assert both.request_finished_all_groups(leg, BLOCKS)[0]
    assert both.build_connector_meta(STEP).extra_async_saves == {"shared": 1}
    assert list(half._leases) == ["shared"]
    output = KVConnectorOutput(finished_sending={"shared", "other"})
    both.update_connector_output(output)
    assert output.finished_sending == {"shared", "other"}
    assert half._leases == {}


def test_its_statistics_are_told_from_those_of_others() -> None:
    """By its name, though it was loaded by the path of its module."""
    made: Any = MultiConnector.build_kv_connector_stats({"HybridReadConnector": {"loads": 1}})
    assert made["HybridReadConnector"] == HybridStats(data={"loads": 1})
