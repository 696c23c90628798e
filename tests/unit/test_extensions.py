"""What users add by a file of their own: kinds of fault, oracles, model presets."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faults.fault import Fault
from faults.kinds import KINDS, _collected
from faults.message_fault import MessageFault
from faults.scene import Scene
from sim.errors import UsageError
from sim.extensions import by_name, load, place_of
from sim.model.presets import _preset_in
from sim.oracles import ORACLES, Oracle, _oracle_in
from sim.oracles.leak import Leak
from sim.verdict import Drop


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ndef f(:\n", 2, "invalid syntax"),
        ("x = 1\n\nclass A(B):\n    pass\n", 3, "NameError: name 'B' is not defined"),
        ("import no_such_module_at_all\n", 1, "No module named 'no_such_module_at_all'"),
    ],
)
def test_a_mistake_in_somebodys_file_is_told_with_its_line(
    text: str, line: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As theirs, with a remedy, and not as a failure of the testbed."""
    file = tmp_path / "somebodys_kind.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as raised:
        load("somebodys_kind")
    message = str(raised.value)
    assert message.startswith(f"{file}:{line}: ")
    assert said in message
    assert message.endswith("mend this file, or take it out of its directory")


def test_two_kinds_of_fault_of_one_name_are_refused() -> None:
    """With the files of both: the first would be gone unnoticed."""

    class Mine(Fault, frozen=True, tag="meteorite"):
        """Everything is gone."""

        def strike(self, scene: Scene) -> None:
            pass

    class Yours(Fault, frozen=True, tag="meteorite"):
        """Nothing is left."""

        def strike(self, scene: Scene) -> None:
            pass

    Mine.__module__, Yours.__module__ = "faults.kinds.mine", "faults.kinds.yours"
    assert list(_collected([Mine])) == ["meteorite"]
    with pytest.raises(UsageError) as raised:
        _collected([*KINDS.values(), Mine, Yours])
    message = str(raised.value)
    assert "two of the kinds of fault are called 'meteorite'" in message
    for place in ("faults/kinds/mine.py (", "Mine)", "faults/kinds/yours.py (", "Yours)"):
        assert place in message


def test_a_kind_of_fault_without_a_docstring_is_refused() -> None:
    """Lists would have nothing to say of it."""

    class Meteorite(Fault, frozen=True, tag="meteorite"):
        pass

    with pytest.raises(UsageError, match="the kind of fault 'meteorite' has no docstring; give it"):
        _collected([Meteorite])


def test_a_kind_of_fault_that_does_nothing_is_refused() -> None:
    """Its class and file are named, and what was probably meant."""

    class Meteorite(MessageFault, frozen=True, tag="meteorite"):
        """Everything is gone."""

        def verdikt(self, item: Any, scene: Scene) -> Drop:
            return Drop()

    class Comet(Fault, frozen=True, tag="comet"):
        """It passes."""

    Meteorite.__module__ = Comet.__module__ = "faults.kinds.mine"
    with pytest.raises(
        UsageError,
        match=r"^faults/kinds/mine\.py \(.*Meteorite\): the kind of fault 'meteorite' has neither "
        r"verdict nor strike \(did you mean 'verdict' by 'verdikt'\?\); "
        r"define verdict\(self, item, scene\)$",
    ):
        _collected([Meteorite])
    with pytest.raises(UsageError, match=r"'comet' has no strike; define strike\(self, scene\)$"):
        _collected([Comet])


def test_a_method_of_a_kind_that_cannot_be_called_is_refused() -> None:
    """With its line, what it takes, and what it is called with."""

    class Meteorite(Fault, frozen=True, tag="meteorite"):
        """Everything is gone."""

        def strike(self) -> None:  # type: ignore[override]
            pass

    line = Meteorite.strike.__code__.co_firstlineno
    with pytest.raises(UsageError) as raised:
        _collected([Meteorite])
    message = str(raised.value)
    assert message.startswith(f"{__file__}:{line} (")
    assert "Meteorite.strike): takes (self), and is called with (self, scene): " in message


def test_a_second_oracle_of_one_name_is_refused() -> None:
    """As ``sim.oracles`` registers them."""

    class Other(Leak):
        pass

    with pytest.raises(UsageError, match=r"'leak': sim/oracles/leak\.py \(Leak\) and .*Other\)"):
        by_name("oracles", [*ORACLES.values(), Other], lambda oracle: oracle.name, place_of)


def test_a_file_that_is_listed_and_not_there_is_told() -> None:
    """As by a name that is misspelt in the list of oracles."""
    with pytest.raises(UsageError, match=r"^sim/oracles/leek\.py: there is no such file; put it"):
        load("sim.oracles.leek")


def test_a_file_without_an_oracle_that_is_complete_is_refused() -> None:
    """None at all, or one that lists cannot name."""
    with pytest.raises(UsageError, match=r"words\.py: defines 0 classes that derive from Oracle"):
        _oracle_in(load("sim.oracles.words"))
    module = ModuleType("sim.oracles.mine")
    module.Mine = type("Mine", (Oracle,), {"__module__": module.__name__})  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"^sim/oracles/mine\.py \(Mine\): has no name; give it"):
        _oracle_in(module)


def test_a_file_without_a_preset_is_refused() -> None:
    """In the directory where each file has one."""
    with pytest.raises(UsageError, match=r"extensions\.py: defines no PRESET"):
        _preset_in(load("sim.extensions"))
