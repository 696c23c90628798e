from __future__ import annotations

from pathlib import Path

import pytest

from faults.cli.options import RunOptions, build_scenario
from sim.errors import UsageError
from sim.fabric import fabric_names, named_fabric
from sim.fabric import named as named_module
from sim.scenario import Scenario, dumps, find_fabric, load, loads, with_settings
from sim.testbed import TestBed

CX7_TEXT = (Path(named_module.__file__).parent / "fabrics" / "cx7.toml").read_text()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Somebody's own fabric: ConnectX-7 with a slower call."""
    path = tmp_path / "mine.toml"
    text = CX7_TEXT.replace('"cx7"', '"mine"').replace("call_ns = 500", "call_ns = 900")
    path.write_text(text + "\n[timers]\ntimeout = 18\n")
    return path


def test_a_file_has_the_keys_of_the_named_ones(file: Path) -> None:
    """What it says is what the run has, timers included."""
    fabric = find_fabric(str(file))
    assert (fabric.name, fabric.call_ns, fabric.timers.timeout) == ("mine", 900, 18)
    assert fabric.nic_bytes_per_ns == named_fabric("cx7").nic_bytes_per_ns


def test_a_scenario_holds_the_numbers_and_needs_the_file_no_more(
    file: Path, tmp_path: Path
) -> None:
    """Named relative to the scenario's file; a recorded scenario replays without it."""
    (tmp_path / "run.yaml").write_text("fabric: mine.toml\n")
    scenario = load(tmp_path / "run.yaml")
    file.unlink()
    assert loads(dumps(scenario)) == scenario
    assert scenario.fabric_profile.call_ns == 900
    changed = with_settings(scenario, {"fabric.call_ns": "700"})
    assert changed.fabric_profile.call_ns == 700


def test_the_command_line_takes_names_and_files(file: Path) -> None:
    """And the engines of the run get their NICs from it."""
    named = build_scenario(RunOptions(fabric="mi300x-thor2"))
    own = build_scenario(RunOptions(fabric=str(file)))
    assert named == Scenario(fabric="mi300x-thor2")
    assert [TestBed(s).world.fabric.profile.name for s in (named, own, Scenario())] == [
        "mi300x-thor2",
        "mine",
        "cx7",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("call_ns = 500", "call_nanos = 500", "call_nanos: unknown key (did you mean 'call_ns'?)"),
        ("call_ns = 500", "", "call_ns: missing; expected an integer, 0 or more"),
        ("call_ns = 500", "call_ns = -1", "call_ns: is -1, expected an integer, 0 or more"),
        ("call_ns = 500", "call_ns = 0.5", "call_ns: is 0.5, expected an integer"),
        ("nic_bytes_per_ns = 49.561", "nic_bytes_per_ns = 0", "nic_bytes_per_ns: is 0, expected"),
        ("nic_bytes_per_ns = 49.561", "nic_bytes_per_ns = nan", "nic_bytes_per_ns: is nan"),
        ("read_bytes_per_ns = 44.860", "read_bytes_per_ns = 60", "expected at most nic_bytes_per"),
        ("call_ns = 500", "call_ns = 500\n[timers]\ntimeout = 32", "timers.timeout: is 32"),
        ("call_ns = 500", "call_ns = ", "is not TOML"),
        ("call_ns = 500", "call_ns = 2026-01-01", "call_ns: is datetime.date(2026, 1, 1), exp"),
        ("call_ns = 500", "call_ns.a = 1", "call_ns: is {'a': 1}, expected an integer, 0 or more"),
        ("call_ns = 500", "timers = 1", "timers: is 1, expected a mapping with the keys timeout"),
        ("call_ns = 500", "call_ns = 5\ncall_ns = 6", "Cannot overwrite a value, in 'call_ns = 6'"),
        ("call_ns = 500", "call_ns = '''", "(at end of document); expected KEY = VALUE, such as"),
        ("call_ns = 500", "call_ns = " + "9" * 5000, "value has 5000 digits; expected KEY = VALUE"),
        (
            "call_ns = 500",
            "call_ns = " + "[" * 9999,
            "is nested too deeply to be read; expected K",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """By the key, the value and what is accepted."""
    path = tmp_path / "mine.toml"
    assert old in CX7_TEXT
    # A table's header takes all keys that follow, so the changed line goes last.
    path.write_text(CX7_TEXT.replace(f"\n{old}\n", "\n") + new + "\n")
    with pytest.raises(UsageError) as refused:
        find_fabric(str(path))
    assert str(refused.value).startswith(f"{path}:")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("added", "place"),
    [
        ("cal_ns = 5\n", "{last}:1: cal_ns: unknown key"),
        ("[timers]\n  timeout = 32\n", "{below}:3: timers.timeout: is 32"),
        ("call_ms = \n", "{last}:11: is not TOML: Invalid value, in 'call_ms ='; expected KEY"),
    ],
)
def test_a_refusal_names_line_and_column(tmp_path: Path, added: str, place: str) -> None:
    """As of YAML, though TOML's reader tells no places of keys."""
    path = tmp_path / "mine.toml"
    path.write_text(CX7_TEXT + added)
    last = CX7_TEXT.count("\n") + 1
    with pytest.raises(UsageError) as refused:
        find_fabric(str(path))
    assert str(refused.value).startswith(f"{path}:{place.format(last=last, below=last + 1)}")


def test_what_is_no_text_is_refused_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\x89\x00")
    with pytest.raises(
        UsageError, match=r"is not UTF-8 text \(invalid start byte\); expected TOML"
    ):
        find_fabric(str(tmp_path / "mine.toml"))


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    """In a scenario and as a setting alike."""
    for refuse in (
        lambda: loads("fabric: cx77\n"),
        lambda: with_settings(Scenario(), {"fabric": "cx77"}),
        lambda: build_scenario(RunOptions(fabric="cx77")),
    ):
        with pytest.raises(UsageError, match="no fabric 'cx77'") as refused:
            refuse()
        assert all(name in str(refused.value) for name in fabric_names())


def test_a_missing_file_is_refused_by_its_key(tmp_path: Path) -> None:
    """With the path that was looked for."""
    (tmp_path / "run.yaml").write_text("fabric: gone.toml\n")
    with pytest.raises(UsageError, match=r"fabric: .*gone.toml: cannot be read"):
        load(tmp_path / "run.yaml")
