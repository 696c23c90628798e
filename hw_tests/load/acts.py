"""What is done to an engine while requests run, and how it is whole again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from hw_tests.child import Child


class Act(NamedTuple):
    """Something that happens to an engine.

    Args:
        begin: makes it go away.
        end: brings it back; it has to become ready then.
        is_brief: whether it is brought back at once.
        on: which engine.
        must_fail: whether requests are asked of it while it is not there, so that one has to fail.
    """

    begin: Callable[[Child], None]
    end: Callable[[Child], None]
    is_brief: bool = False
    on: Literal["prefill", "decode"] = "prefill"
    must_fail: bool = False


ACTS: Final = {
    "killed": Act(Child.kill, Child.start, must_fail=True),
    "stopped": Act(Child.suspend, Child.resume),
    "restarted": Act(Child.kill, Child.start, is_brief=True),
    "decode-killed": Act(Child.kill, Child.start, on="decode", must_fail=True),
    "decode-stopped": Act(Child.suspend, Child.resume, on="decode"),
}
