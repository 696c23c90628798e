"""Which tests run on each host alone, and which between the two."""

from __future__ import annotations

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
