"""The whole table of mutants."""

from __future__ import annotations

import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode

pytestmark = pytest.mark.soak


def test_every_mutant_is_caught() -> None:
    """Within a hundred seeds; nearly all of them within ten."""
    assert dispatch.run(["mutants", "--seeds", "100"]) == ExitCode.OK
