"""What vLLM's connector and this project's do on the scenarios after public reports.

When either does something else, its case turns red, and the entry and docs/corpus.md have to say
so.
"""

from __future__ import annotations

from typing import Any

import pytest

from faults.corpus.check import check
from faults.corpus.entry import OWN, UPSTREAM, load_entry, names

# Many requests, or many virtual seconds.
SLOW = {
    "mori-415",
    "mori-670",
    "sglang-24527",
    "vllm-40340",
    "vllm-41863",
    "vllm-57705",
}


def _entries() -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.soak] if n in SLOW else []) for n in names()]


@pytest.mark.parametrize("connector", [UPSTREAM, OWN])
@pytest.mark.parametrize("name", _entries())
def test_an_entry_ends_as_it_says(name: str, connector: str) -> None:
    """Every fault reaches somebody, and requests and broken rules are those of the file."""
    finding = check(name, load_entry(name), connector)
    assert finding.missed == []
    assert finding.found == finding.expected
