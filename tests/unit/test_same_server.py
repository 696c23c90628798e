"""Servers by their URLs."""

from __future__ import annotations

import pytest

from hw_tests.same_server import same_server


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("http://127.0.0.1:80", True),
        ("http://localhost", True),
        ("http://127.1:80", True),
        ("http://127.0.0.1:81", False),
        ("http://127.0.0.2:80", False),
        ("http://[::1", False),
        ("http://127.0.0.1:99999", False),
    ],
)
def test_a_server_is_known_by_its_address_and_port(other: str, is_same: bool) -> None:
    assert same_server("http://127.0.0.1:80", other) == is_same
