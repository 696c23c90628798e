from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from faults.fault import Fault
from faults.kinds import KINDS
from faults.requisites import requisites, shipped_kinds
from sim.scenario import Scenario
from sim.scenario.types import Topology


class Crowding(Fault, frozen=True, tag="crowding"):
    """A kind that somebody has added."""


def test_the_kinds_that_are_shipped_are_listed() -> None:
    """A kind that comes with faultlab is in the list, and nothing else is."""
    assert shipped_kinds() == KINDS.keys() - {"crowding"}


def test_what_comes_with_faultlab_or_vllm_needs_no_word() -> None:
    """Its connectors, its kinds, and any class of vLLM."""
    moriio = "vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector:MoRIIOConnector"
    for connector in ("moriio", "hybrid", moriio):
        assert requisites(Scenario(connector=connector, faults=({"kind": "crash"},))) == []


@pytest.mark.parametrize(
    ("module", "file"),
    [("mykv.connector", "mykv/connector.py"), ("mykv", "mykv/__init__.py"), ("flat", "flat.py")],
)
def test_somebodys_connector_has_to_be_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, file: str
) -> None:
    """Module, file and hash are named once, wherever else the connector is used."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(f"# {module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = f"{module}:Mine"
    (said,) = requisites(Scenario(connector=name, topology=Topology(producer_connector=name)))
    for words in (f"`{name}`", f"`{module}`", "`PYTHONPATH`", f"`{file}`", digest(tmp_path / file)):
        assert words in said
    assert str(tmp_path) not in said


def test_somebodys_kind_of_fault_is_not_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind, file and hash."""
    monkeypatch.setitem(KINDS, "crowding", Crowding)
    faults = ({"kind": "crash"}, {"kind": "crowding"}, {"kind": "crowding"})
    (said,) = requisites(Scenario(faults=faults))
    for words in ("`crowding`", "a checkout lacks it", "`test_requisites.py`", "`faults/kinds/`"):
        assert words in said
    assert digest(Path(__file__)) in said


def digest(path: Path) -> str:
    """As ``b2sum -l 64`` prints it."""
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
