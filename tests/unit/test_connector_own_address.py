"""Where an engine says that it is, and where its ranks are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.moriio import moriio_common

from connector import own_address as module
from connector.core.config import parse_settings
from connector.core.errors import ConfigError
from connector.own_address import check_one_machine, own_address

PORTS: dict[str, Any] = {"handshake_port": 6301, "notify_port": 61005}


def told(extra: dict[str, Any]) -> str:
    return own_address(parse_settings({**PORTS, **extra}, role="kv_producer"))


@pytest.mark.requirement("R5", "S6")
def test_host_ip_comes_before_vllms_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moriio_common, "get_ip", lambda: "10.0.0.7")
    assert told({}) == told({"host_ip": ""}) == told({"host_ip": None}) == "10.0.0.7"
    assert told({"host_ip": "10.0.0.1"}) == "10.0.0.1"


@pytest.mark.requirement("R5", "S6")
@pytest.mark.parametrize("guess", ["prefill-0", "::1"])
def test_a_guess_that_peers_would_refuse_ends_the_start(
    guess: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than each request."""
    monkeypatch.setattr(moriio_common, "get_ip", lambda: guess)
    with pytest.raises(ConfigError, match=f"host_ip is not set, and vLLM takes '{guess}' for"):
        told({})


def place_ranks(monkeypatch: pytest.MonkeyPatch, here: list[bool]) -> None:
    """Have vLLM find these of a group's ranks on the machine of rank 0."""
    group = SimpleNamespace(world_size=len(here), cpu_group="of the ranks")
    monkeypatch.setattr(module, "get_tp_group", lambda: group)
    monkeypatch.setattr(
        module, "in_the_same_node_as", lambda asked: asked == "of the ranks" and here
    )


def parallel(backend: str) -> Any:
    return SimpleNamespace(distributed_executor_backend=backend, use_ray=backend == "ray")


@pytest.mark.requirement("R5")
@pytest.mark.parametrize("backend", ["ray", "external_launcher"])
def test_ranks_that_were_placed_on_several_machines_are_refused(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers dial all of them where rank 0 is."""
    place_ranks(monkeypatch, [True, True, False, False])
    expected = rf"backend is '{backend}', and the tensor-parallel ranks \[2, 3\] share no memory"
    with pytest.raises(ConfigError, match=expected):
        check_one_machine(parallel(backend))
    place_ranks(monkeypatch, [True, True])
    check_one_machine(parallel(backend))


@pytest.mark.requirement("R5")
@pytest.mark.parametrize(("backend", "here"), [("mp", [True, False]), ("ray", [False])])
def test_ranks_whose_place_is_known_are_not_asked(
    backend: str, here: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank is where it is, and vLLM's own processes are where nnodes says."""
    place_ranks(monkeypatch, here)
    check_one_machine(parallel(backend))
