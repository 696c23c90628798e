"""A campaign whose connector is edited while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.campaign.campaign import Campaign
from faults.campaign.plan import plan_here
from faults.campaign.result import SeedResult
from faults.campaign.store import Store, read
from faults.campaign.swarm import SwarmOptions
from sim.errors import UsageError

CONNECTOR = "edited_connector:Connector"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's connector, of two modules."""
    package = tmp_path / "edited_connector"
    package.mkdir()
    (package / "__init__.py").write_text("from edited_connector.core import Connector\n")
    (package / "core.py").write_text("class Connector: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


class EditingPool:
    """Whose third run sees ``edit`` made."""

    def __init__(self, edit: Callable[[], Any]) -> None:
        self._edit = edit

    def run(self, seeds: Iterator[int], make_job: Any) -> Iterator[SeedResult]:
        for seed in seeds:
            if seed == 2:
                self._edit()
            yield SeedResult(seed=seed, status="passed")


def run(
    out: Path, edit: Callable[[], Any], *, resume: bool = False, overlay: Path | None = None
) -> list[int]:
    """The seeds that have results, where the campaign comes to its end."""
    settings = {} if overlay is None else {"overlay": str(overlay)}
    plan = plan_here(SwarmOptions(connector=CONNECTOR, settings=settings), range(5), (1, 1))
    with Store(out, plan, resume=resume) as store:
        pool = EditingPool(edit)
        Campaign(store).run(pool, None, lambda result: None)  # type: ignore[arg-type]
    return [result.seed for result in read(out)[1]]


def test_an_edit_ends_the_campaign_and_names_the_file(tmp_path: Path, package: Path) -> None:
    """Results from before are kept, and it goes on once the file is as it was."""
    out, core = tmp_path / "out", package / "core.py"
    before = core.read_text()
    with pytest.raises(UsageError, match=r"core\.py: changed while the campaign ran") as raised:
        run(out, lambda: core.write_text("class Connector: x = 1\n"))
    assert "__init__" not in str(raised.value)
    assert [result.seed for result in read(out)[1]] == [0, 1]
    with pytest.raises(UsageError, match=r"another camp.*\n  versions\.under_test: \w+ → \w+$"):
        run(out, lambda: None, resume=True)
    core.write_text(before)
    assert sorted(run(out, lambda: None, resume=True)) == [0, 1, 2, 3, 4]


def test_files_that_come_and_go_count_too(tmp_path: Path, package: Path) -> None:
    """In an overlay they take the place of installed ones."""
    overlay = tmp_path / "patch"
    added = overlay / package.name / "added.py"
    added.parent.mkdir(parents=True)
    added.write_text("x = 1\n")
    with pytest.raises(UsageError, match=r"added\.py: changed"):
        run(tmp_path / "1", lambda: added.write_text(""), overlay=overlay)
    with pytest.raises(UsageError, match=r"added\.py: changed"):
        run(tmp_path / "2", added.unlink, overlay=overlay)


def test_a_file_that_is_written_anew_as_it_was_is_no_edit(tmp_path: Path, package: Path) -> None:
    """Nor is what Python compiles, or any other file."""

    def touch() -> None:
        os.utime(package / "core.py", ns=(1, 1))
        (package / "__pycache__").mkdir()
        (package / "__pycache__" / "core.pyc").write_bytes(b"")
        (package / "notes.txt").write_text("x")

    assert run(tmp_path / "out", touch) == [0, 1, 2, 3, 4]
