"""Endpoints that are given up: each is closed once, and none keeps another from it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stand_in_library import connector_module

from connector.core.config import parse_settings
from connector.counters import Counters


@pytest.fixture
def endpoint() -> Iterator[ModuleType]:
    yield from connector_module("endpoint")


@pytest.mark.requirement("S5")
def test_one_that_cannot_be_closed_keeps_no_other_open(endpoint: ModuleType) -> None:
    """It does not count as quiet, and is not tried a thousand times a second."""
    calls: list[str] = []

    def transport(name: str, *, raises: bool) -> Any:
        def close() -> bool:
            calls.append(name)
            if raises:
                raise RuntimeError("the device is gone")
            return True

        return SimpleNamespace(close=close)

    first, second = (
        endpoint.Endpoint(transport(name, raises=name == "first"), {}, {})
        for name in ("first", "second")
    )
    made = iter([first, second])
    endpoints = endpoint.Endpoints(lambda: next(made), Counters(), 0)
    endpoints.retire(first, peer="p", reason="")
    endpoints.retire(endpoints.current(on_trial=False), peer="p", reason="")
    endpoints.close_retired([second])
    endpoints.close_retired([])
    endpoints.close_retired([])
    assert calls == ["first", "second"]
    assert (first.is_quiet, second.is_quiet) == (False, True)


@pytest.fixture
def transport() -> Iterator[ModuleType]:
    yield from connector_module("transport")


@pytest.mark.requirement("S4")
def test_no_engine_of_the_library_has_the_name_of_another(
    transport: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same rank after a restart, or in place of one that has failed: a peer cannot reach
    what comes back under a name that it has known."""
    names: list[str] = []

    def make(name: str, _config: Any) -> Any:
        names.append(name)
        return SimpleNamespace(create_backend=lambda *_: None)

    monkeypatch.setattr(transport, "IOEngine", make)
    settings = parse_settings({"handshake_port": 6301, "notify_port": 61005}, role="kv_consumer")
    for _ in range(3):
        transport.Transport("10.0.0.1", 0, "10.0.0.1:6301", settings)
    assert len(set(names)) == 3
    assert all(name.startswith("10.0.0.1:6301:") for name in names)
