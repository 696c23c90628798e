"""The worker half: one rank's memory, side channel and transfers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.distributed.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tp_group,
    get_world_group,
)
from vllm.v1.attention.selector import get_attn_backend
from vllm.v1.kv_cache_interface import KVCacheConfig

from connector.caches import check_peer, fingerprint_of
from connector.confirmation import Confirmation
from connector.core.config import Settings
from connector.core.errors import ConnectorError
from connector.core.fingerprint import Fingerprint
from connector.core.groups import TransferGroups, check_transferable
from connector.core.legs import LegCount
from connector.counters import Counters
from connector.data_parallel import rank_for_ports, shares_a_front_end
from connector.digests import Digester
from connector.endpoint import Endpoint, Endpoints, open_endpoint
from connector.heartbeat import Announcement, Heartbeat
from connector.holds import HoldBook
from connector.listener import Listener
from connector.load_results import LoadResults
from connector.load_steps import LoadSteps, Timeouts
from connector.loader import Loader
from connector.logs import log
from connector.memory import CacheMemory
from connector.metadata import LoadOrder, Renewals, StepOrders
from connector.own_address import check_one_machine, own_address
from connector.peer import CheckWelcome, Peer
from connector.peer_book import PeerBook
from connector.release_sender import ReleaseSender
from connector.releaser import Releaser
from connector.renewer import Renewer
from connector.side_channel import open_context
from connector.vllm_specs import layer_specs, transfer_groups
from connector.wire import RankPlace, encode_welcome


class LoadFailed(ConnectorError):
    """A synchronous load failed and only the whole step can be failed for it."""


class Role(Protocol):
    """What differs between a producer's rank and a consumer's."""

    def take_orders(self, orders: StepOrders) -> None: ...

    def results(self) -> KVConnectorTransferResults: ...

    def renewals(self) -> Renewals | None: ...

    def invalid_blocks(self) -> set[int]: ...

    def close(self) -> None: ...


class Worker:
    """One rank.

    Args:
        vllm_config: vLLM's.
        cache_config: the worker's own.
        settings: of this engine.
        counters: of this rank.

    Raises:
        UnsupportedModel: some layer cannot be transferred.
        ConfigError: peers cannot reach this rank.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        cache_config: KVCacheConfig,
        settings: Settings,
        counters: Counters,
    ) -> None:
        self._vllm_config = vllm_config
        self._settings = settings
        self._specs = layer_specs(cache_config)
        self.groups = transfer_groups(cache_config)
        self._num_cache_groups = len(cache_config.kv_cache_groups)
        for warning in check_transferable(self.groups, settings.drafter_groups):
            log.warning("lesser-tested-layout", reason=warning)
        parallel = vllm_config.parallel_config
        self._tp_size = int(parallel.tensor_parallel_size)
        self._rank = int(get_tensor_model_parallel_rank())
        self._port_offset = rank_for_ports(parallel) * self._tp_size + self._rank
        check_one_machine(parallel)
        self._host_ip = own_address(settings)
        self._name = (
            f"{settings.role}:{self._host_ip}:{settings.handshake_port}:{self._port_offset}"
        )
        self._counters = counters
        self._role: Role | None = None
        self._heartbeat: Heartbeat | None = None

    # ------------------------------------------------------------- vLLM's hooks

    def register_kv_caches(self, caches: dict[str, torch.Tensor]) -> None:
        """Register all transferred caches and open the side channel."""
        memory = CacheMemory(caches, self._specs, self.groups.payload_index_by_layer())
        make_endpoint = partial(open_endpoint, self._host_ip, self._name, self._settings, memory)
        backend = self._backend_name()
        about = {"role": self._settings.side, "half": "worker", "rank": self._rank}
        log.info(
            "caches-registered",
            **about,
            blocks=memory.num_blocks,
            backend=backend,
            layers=memory.layout(),
        )
        fingerprint = fingerprint_of(self._vllm_config, self.groups, self._specs, memory, backend)
        if self._settings.is_producer:
            self._role = self._producer(memory, make_endpoint(), fingerprint, backend)
        else:
            check = partial(check_peer, fingerprint, memory, backend)
            self._role = self._consumer(memory, make_endpoint, check)
        if self._settings.proxy_ip and get_world_group().rank == 0:
            self._heartbeat = self._announce()

    def take_orders(self, orders: StepOrders) -> None:
        """Raises LoadFailed if the step must not go on."""
        assert self._role is not None
        self._role.take_orders(orders)

    def results(self) -> KVConnectorTransferResults:
        assert self._role is not None
        return self._role.results()

    def renewals(self) -> Renewals | None:
        """What the scheduler half hears besides results; None if nothing."""
        return None if self._role is None else self._role.renewals()

    def invalid_blocks(self) -> set[int]:
        return set() if self._role is None else self._role.invalid_blocks()

    def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.close()
            self._heartbeat = None
        if self._role is not None:
            self._role.close()
            self._role = None

    # ---------------------------------------------------------------- start-up

    def _announce(self) -> Heartbeat:
        notify_port = self._settings.notify_port + self._port_offset
        dp_size = int(self._vllm_config.parallel_config.data_parallel_size)
        announcement = Announcement(self._host_ip, notify_port, dp_size, self._tp_size)
        return Heartbeat(announcement, self._settings, self._counters)

    @property
    def _sample_gap_s(self) -> float:
        """vLLM's front end may send each sample of a prompt to another data-parallel rank."""
        is_spread = shares_a_front_end(self._vllm_config)
        return math.inf if is_spread else self._settings.control_timeout_s

    def _backend_name(self) -> str:
        model = self._vllm_config.model_config
        backend = get_attn_backend(
            model.get_head_size(),
            model.dtype,
            self._vllm_config.cache_config.cache_dtype,
            use_mla=model.use_mla,
        )
        return str(backend.get_name())

    def _producer(
        self,
        memory: CacheMemory,
        endpoint: Endpoint,
        fingerprint: Fingerprint,
        backend: str,
    ) -> Role:
        holds = HoldBook(self._tp_size)
        place = RankPlace(self._rank, self._tp_size)
        attention = [layer for layer in memory.layers if not layer.is_state]
        metadata = {
            "engine_id": f"{self._host_ip}:{self._settings.handshake_port}",
            "agent_metadata": endpoint.transport.descriptor,
            "kv_caches_base_addr": memory.base_addresses,
            "num_blocks": memory.num_blocks,
            "block_len": max(layer.spec.page_size_bytes for layer in attention),
            "attn_backend_name": backend,
            "kv_head_layouts": {
                layer.name: layer.head_layout.to_wire()
                for layer in attention
                if layer.head_layout is not None
            },
            "attention_block_sizes": {layer.name: layer.spec.block_size for layer in attention},
        }
        listener = Listener(
            self._settings.handshake_port + self._port_offset,
            self._settings.notify_port + self._port_offset,
            holds,
            Digester(memory),
            lambda: encode_welcome(
                metadata, endpoint.descriptors, holds.incarnation, fingerprint, place
            ),
            self._counters,
        )
        return ProducerRank(holds, listener, endpoint)

    def _consumer(
        self, memory: CacheMemory, make_endpoint: Callable[[], Endpoint], check: CheckWelcome
    ) -> Role:
        settings = self._settings
        context = open_context()
        endpoints = Endpoints(make_endpoint, self._counters, self._rank)

        def make_peer(host: str, port: int) -> Peer:
            timeout, pause = settings.control_timeout_s, settings.transfer_timeout_s / 2
            return Peer(context, host, port, memory, endpoints, check, timeout, pause)

        timeouts = Timeouts(settings.transfer_timeout_s, settings.fence_s)
        results = LoadResults()
        peers = PeerBook(
            make_peer,
            self._rank,
            self._tp_size,
            self._counters,
            requires_safe_reads=settings.require_safe_reads,
            verifies_reads=settings.verify_reads != "off",
        )
        confirmation = Confirmation(
            settings.verify_reads,
            memory,
            [group.name for group in self.groups.on_wire],
            Digester(memory),
            settings.control_timeout_s,
        )
        renewer = Renewer(
            peers.source, settings.control_timeout_s, settings.renewal_timeout_s, self._counters
        )
        sender = ReleaseSender(context, self._rank, self._tp_size)
        releaser = Releaser(sender, renewer, LegCount(self._sample_gap_s))
        steps = LoadSteps(
            peers,
            confirmation,
            releaser,
            results,
            self._rank,
            timeouts,
            self._counters,
        )
        loader = Loader(steps, peers, endpoints, renewer, releaser, results, timeouts.transfer_s)
        return ConsumerRank(loader, self.groups, settings, self._num_cache_groups)


class ProducerRank:
    """A producer's rank: passes the scheduler's orders on, and reports ended holds."""

    def __init__(self, holds: HoldBook, listener: Listener, endpoint: Endpoint) -> None:
        self._holds = holds
        self._listener = listener
        self._endpoint = endpoint  # lives as long as peers may read

    def take_orders(self, orders: StepOrders) -> None:
        self._holds.take_orders(orders)

    def results(self) -> KVConnectorTransferResults:
        return KVConnectorTransferResults(self._holds.take_sent(), set(), set())

    def renewals(self) -> Renewals | None:
        numbers = self._holds.take_renewed()
        return Renewals(numbers) if numbers else None

    def invalid_blocks(self) -> set[int]:
        return set()

    def close(self) -> None:
        self._listener.close()


class ConsumerRank:
    """A consumer's rank: starts loads, waits for those that the step waits for."""

    def __init__(
        self, loader: Loader, groups: TransferGroups, settings: Settings, num_cache_groups: int
    ) -> None:
        self._loader = loader
        self._groups = groups
        self._settings = settings
        self._has_one_group = num_cache_groups == 1
        self._refused: set[str] = set()
        self._invalid: set[int] = set()
        self._destinations: dict[str, frozenset[int]] = {}

    def take_orders(self, orders: StepOrders) -> None:
        """Raises LoadFailed if a load that the step waits for failed."""
        for kept in orders.kept:
            self._loader.keep(kept)
        for release in orders.releases:
            self._loader.release(release)
        self._refused.update(orders.refused)
        awaited = [order for order in orders.loads if not order.waits]
        if awaited:
            self._run_in_step(awaited)
        for order in orders.loads:
            if order.waits:
                self._destinations[order.request_id] = order.plan.destinations
                self._loader.start(order, _device_progress())

    def results(self) -> KVConnectorTransferResults:
        ended, failed = self._loader.results.take()
        for request_id in ended:
            destinations = self._destinations.pop(request_id, frozenset())
            if request_id in failed and self._has_one_group:
                self._invalid |= destinations
        refused, self._refused = self._refused, set()
        return KVConnectorTransferResults(set(), ended | refused, failed | refused)

    def renewals(self) -> Renewals | None:
        return None

    def invalid_blocks(self) -> set[int]:
        invalid, self._invalid = self._invalid, set()
        return invalid

    def close(self) -> None:
        self._loader.close()

    def _run_in_step(self, orders: list[LoadOrder]) -> None:
        """Load while the step waits, so that its forward pass finds the bytes in place."""
        if self._groups.has_state:
            # vLLM's copies of states are queued already and must not overwrite what arrives.
            torch.cuda.current_stream().synchronize()
        is_ready = _device_progress()
        for order in orders:
            self._loader.start(order, is_ready)
        names = [order.request_id for order in orders]
        loaded, failed = self._loader.results.wait(names, self._settings.transfer_timeout_s)
        bad = [order for order in orders if order.request_id not in loaded]
        must_end = bad and (not self._has_one_group or any(o.request_id not in failed for o in bad))
        fatal = _of_all_ranks([order.request_id for order in bad] if must_end else [])
        if fatal:
            raise LoadFailed(
                f"the synchronous load of {', '.join(fatal)} failed; vLLM can fail a single "
                "request only if load_mode is async"
            )
        for order in bad:
            self._invalid |= order.plan.destinations


def _of_all_ranks(names: list[str]) -> list[str]:
    """The names that any rank has.

    A rank that ended its step alone would leave the others in the collectives of their forward
    pass, and vLLM, which hears the ranks in order, would wait minutes for the first of them.
    """
    group = get_tp_group()
    if group.world_size == 1:
        return names
    of_ranks: list[list[str]] = [[] for _ in range(group.world_size)]
    torch.distributed.all_gather_object(of_ranks, names, group=group.cpu_group)
    return list(dict.fromkeys(name for of_rank in of_ranks for name in of_rank))


def _device_progress() -> Callable[[], bool]:
    """Tells when all that is queued on the device now is done.

    A read does not wait for the device, and a block's former owner may still be written to.
    """
    event = torch.cuda.Event()
    event.record()
    return lambda: bool(event.query())
