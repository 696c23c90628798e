"""Which tests run on each host alone, and which between the two."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple


class Suite(NamedTuple):
    """Arguments of pytest.

    Args:
        each_host: of what needs one host.
        both: of what runs a producer and a consumer.
    """

    each_host: Sequence[str]
    both: Sequence[str]


SERVED = ("load", "recall")
"""Suites without tests of pytest: a client asks a model that is served on both hosts (`served`)."""

_LONG = ["-m", "soak or not soak"]

SUITES = {
    "first": Suite(["hw_tests/test_conformance.py"], ["hw_tests/process", "-k", "a_read_fills"]),
    "all": Suite(
        ["hw_tests/test_conformance.py", "hw_tests/test_calibration.py"],
        ["hw_tests/process", *_LONG],
    ),
    "pair": Suite([], ["hw_tests/process"]),
    "geometry": Suite([], ["hw_tests/process/test_process_geometry.py", *_LONG]),
}

NOT_OF_A_RUN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONOPTIMIZE")
"""Variables that would say which tests run, or that nothing is asserted."""
ALONE = ("-c=pyproject.toml", "--confcutdir=hw_tests", "-o=addopts=", "-m", "not soak")
"""Likewise: no other file beside the sources says that, whose hash no report has."""

_OWN = {
    "load": ("--prefill", "--decode", "--control", "--prefill-url", "--decode-url", "--control-url",
             "--router-port", "--start-within", "--unverified", "--out"),
    "recall": ("--url", "--control-url", "--unverified", "--out"),
}  # fmt: skip
_OTHER_PROCESSES = ("-n", "--numprocesses", "--dist", "-d", "--tx", "-f", "--looponfail")
"""Of pytest-xdist, whose processes would not know the hosts."""
_OWN_OF_PYTEST = ("--arm", "--peer", "--junitxml", "--junit-xml", "--rootdir", "-c",
                  "--config-file", *_OTHER_PROCESSES)  # fmt: skip
_UNTOLD = ("@", "-o", "--override-ini", "-p")
_FLAGS = "qvslx"
"""Of pytest, which may stand before another letter, as in -qk."""
_NEEDED = {"load": ("--trace",)}


def own_after(suite: str) -> Sequence[str]:
    """Options that a run gives itself to pytest, or to the client of a suite."""
    return _OWN.get(suite, _OWN_OF_PYTEST)


def untold_after(suite: str) -> Sequence[str]:
    """Options that can leave out tests in ways that no verdict could tell."""
    return () if suite in _OWN else _UNTOLD


def option(word: str) -> str:
    """The name in ``--name=value``, ``-n1``, ``-n=1`` or ``-qn1``; ``@`` of a file of options."""
    if word.startswith("--"):
        return word.partition("=")[0]
    if word.startswith("-"):
        return "-" + (word[1:].lstrip(_FLAGS) or word[1:])[:1]
    return word[:1] if word.startswith("@") else word[:2]


def narrowing(after: Sequence[str]) -> list[str]:
    """What of further arguments of pytest leaves out tests of a suite, as it was given.

    A path leaves out none: it is one more beside those of the suite.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in _FLAGS:
        parser.add_argument(f"-{flag}", action="count")
    for flag in ("-k", "-m", "--deselect", "--ignore", "--ignore-glob"):
        parser.add_argument(flag, action="append", default=[])
    found = vars(parser.parse_known_args(after)[0])
    told = []
    for name, values in found.items():
        if isinstance(values, list):
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            told += [f"{flag} {value}" for value in values]
    return told


def needed_after(suite: str) -> Sequence[str]:
    """Options that only who starts a run can give."""
    return _NEEDED.get(suite, ())


def combined(suite: Sequence[str], narrowed: Sequence[str]) -> list[str]:
    """Arguments of pytest: both parts, and of ``-k`` and ``-m`` what both of them select."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-k", action="append", default=[])
    parser.add_argument("-m", action="append", default=[])
    found, others = parser.parse_known_args([*suite, *narrowed])
    for flag, expressions in (("-k", found.k), ("-m", found.m)):
        if len(expressions) > 1:
            others += [flag, " and ".join(f"({each})" for each in expressions)]
        elif expressions:
            others += [flag, expressions[0]]
    return others
