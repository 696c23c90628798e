from __future__ import annotations

import ast

import pytest
from allowed_calls import ALLOWED
from impure_calls import impure_uses
from set_iteration import set_iterations
from source_tree import name, parse, python_files

SIMULATOR = python_files("sim")


def test_the_simulator_uses_no_clock_randomness_or_identity_beyond_the_allowed() -> None:
    """Anything else could reach the event log and make a run irreproducible."""
    found = [
        f"{name(path)}:{use.line}: {use.name}"
        for path in SIMULATOR
        for use in impure_uses(parse(path))
        if (name(path), use.name) not in ALLOWED
    ]
    assert not found, "use the kernel's clock and streams, or add a reason to allowed_calls.py"


def test_every_allowed_call_is_still_needed_and_has_a_reason() -> None:
    """The list of exceptions shrinks when the code does."""
    used = {(name(path), use.name) for path in SIMULATOR for use in impure_uses(parse(path))}
    assert sorted(ALLOWED.keys() - used) == []
    assert [key for key, reason in ALLOWED.items() if len(reason.split()) < 4] == []


def test_the_simulator_iterates_no_set() -> None:
    """A set's order depends on the hash seed or on addresses; sort it, or use a dict."""
    found = [f"{name(path)}:{line}" for path in SIMULATOR for line in set_iterations(parse(path))]
    assert not found, "sort the set, or keep a dict instead"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.time()", "time.time"),
        ("import time as t\nt.monotonic_ns()", "time.monotonic_ns"),
        ("from time import sleep\nsleep(1)", "time.sleep"),
        ("import time\nfield(default_factory=time.time)", "time.time"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("import random\nrandom.random()", "random.random"),
        ("from random import Random\nRandom(3)", "random.Random"),
        ("import numpy as np\nnp.random.default_rng()", "numpy.random.default_rng"),
        ("import uuid\nuuid.uuid4()", "uuid.uuid4"),
        ("sorted(tasks, key=id)", "id"),
        ("table[hash(word)]", "hash"),
    ],
)
def test_an_impure_use_is_found_however_it_is_written(source: str, expected: str) -> None:
    """Aliases, from-imports and functions handed on are all uses."""
    assert [use.name for use in impure_uses(ast.parse(source))] == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "self.env.time()",
        "import time\ntime.struct_time",
        "def sleep(): ...\nsleep()",
        "a.hash()",
        "import random\ndef f(stream: random.Random): ...",
    ],
)
def test_a_name_that_only_looks_impure_is_left_alone(source: str) -> None:
    """What counts is what was imported, not what it is called."""
    assert impure_uses(ast.parse(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: ...",
        "[x for x in set(words)]",
        "list(frozenset(words))",
        "def f(words: set[str]):\n    for w in words: ...",
        "def f():\n    seen = set()\n    return tuple(seen)",
        "class A:\n    def __init__(self): self.w = set()\n    def f(self): return [*self.w]",
        "class A:\n    w: set[int] = field(default_factory=set)\n    def f(self): self.w.pop()",
        "for k in a.keys() - b.keys(): ...",
        "for x in set(a).union(b): ...",
        "','.join({'a', 'b'})",
    ],
)
def test_an_iterated_set_is_found(source: str) -> None:
    """Literals, annotations, assignments, attributes and set algebra count."""
    assert len(set_iterations(ast.parse(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted({1, 2}): ...",
        "any(x > 1 for x in {1, 2})",
        "{x for x in {1, 2}}",
        "def f(words: list[str]):\n    for w in words: ...",
        "def f():\n    seen = set()\n    return len(seen), 3 in seen",
        "def f(xs: set[int]): ...\ndef g(xs: list[int]): return [*xs]",
    ],
)
def test_a_set_whose_order_does_not_matter_is_left_alone(source: str) -> None:
    """Sorting, membership, size and building another set are fine."""
    assert set_iterations(ast.parse(source)) == []
