"""Hosts of which only the facts are known."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest

from hw_tests.cluster.facts import facts_of
from hw_tests.cluster.options import Options


@functools.cache
def facts() -> dict[str, Any]:
    """Of this machine."""
    return facts_of("sim")


@dataclass
class Told:
    """A host of which only the facts are known."""

    name: str
    facts_there: dict[str, Any]
    address: str = "127.0.0.1"

    def facts(self, _arm: str) -> dict[str, Any]:
        return self.facts_there

    def preload(self, _modules: object) -> None:
        pass

    def listen(self, _number: int) -> list[int]:
        return []

    def unreached(self, _address: str, _ports: object) -> str:
        return ""


def told_hosts(*others: dict[str, Any]) -> Any:
    """A producer's and a consumer's host; ``others``: what is so there."""
    here = facts()
    roles = ("kv_producer", "kv_consumer")
    return {
        role: Told(f"node{number}", {**here, **other})
        for number, (role, other) in enumerate(zip(roles, others, strict=True), 1)
    }


def connected(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher finds ``hosts``; it changes nothing of this process's signals."""

    def connect(_options: Options, _stack: object) -> Any:
        return hosts

    monkeypatch.setattr("hw_tests.cluster.__main__.connect", connect)
    monkeypatch.setattr("signal.signal", lambda *_: None)
