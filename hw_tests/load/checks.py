"""What has to be true of a phase, each check with what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hw_tests.load.send import Reply
from hw_tests.load.verified import WANTED
from hw_tests.recall.counters import Counters

_GATEWAY = (500, 502, 503, 504)
_Counted = Counters | str


@dataclass(frozen=True)
class Check:
    """One thing that has to be true."""

    name: str
    passed: bool
    seen: str


def all_served(name: str, replies: Sequence[Reply]) -> Check:
    """Every request has an answer."""
    lost = [reply for reply in replies if not reply.served]
    first = f"; {lost[0].name}: {lost[0].error}" if lost else ""
    return Check(name, not lost, f"{len(replies) - len(lost)} of {len(replies)} served{first}")


def errors_are_told(replies: Sequence[Reply], within_s: float, *, expected: bool) -> Check:
    """What failed did so with a server's error and a text, in time; something did, if that is
    ``expected``."""
    failed = [reply for reply in replies if not reply.served]
    silent = [reply for reply in failed if reply.status not in _GATEWAY]
    late = [reply for reply in replies if reply.ended_s - reply.began_s > within_s]
    seen = f"{len(failed)} of {len(replies)} failed, {len(silent)} without a server's error, "
    seen += f"{len(late)} took longer than {within_s:g} s"
    if silent:
        seen += f"; {silent[0].name}: status {silent[0].status}, {silent[0].error}"
    passed = not silent and not late and (bool(failed) or not expected)
    return Check("errors are reported, in time", passed, seen)


def same_answers(replies: Sequence[Reply], control: Sequence[Reply], *, exact: bool) -> Check:
    """What was served reads as the control's; only counted unless ``exact``, because sums are
    rounded otherwise in other batches."""
    pairs = [(one, other) for one, other in zip(replies, control, strict=True)
             if one.served and other.served]  # fmt: skip
    differ = [one.name for one, other in pairs if one.text != other.text]
    seen = f"{len(pairs) - len(differ)} of {len(pairs)} the same"
    if differ:
        seen += f"; first other: {differ[0]}"
    return Check("answers are the control's", not differ or not exact, seen)


def blocks_were_read(counted: _Counted, *, expected: bool) -> Check:
    """The decode engine loaded what was handed over and no load failed; if that is not
    ``expected``, it may have had all of it."""
    name = "blocks are read, and no read fails"
    if isinstance(counted, str):
        return Check(name, False, f"not known: {counted}")
    seen = f"{counted.loads:g} loads, and {counted.failed_loads:g} that failed"
    return Check(name, counted.failed_loads == 0 and (counted.loads > 0 or not expected), seen)


def control_loads_nothing(counted: _Counted) -> Check:
    """Or it answers from what was handed over, as a decode engine under another address does."""
    name = "the control loads nothing"
    if isinstance(counted, str):
        return Check(name, False, f"not known: {counted}")
    seen = f"{counted.loads:g} loads, and {counted.failed_loads:g} that failed"
    return Check(name, counted.loads == counted.failed_loads == 0, seen)


def drafts_are_accepted(router: _Counted, control: _Counted, gap: float) -> Check:
    """As many of the drafts behind the router as of the control's, but for ``gap``."""
    name = "drafts are accepted as often as the control's"
    if isinstance(router, str) or isinstance(control, str):
        unknown = router if isinstance(router, str) else control
        return Check(name, False, f"not known: {unknown}")
    behind, beside = router.acceptance, control.acceptance
    if behind is None or beside is None:
        return Check(name, behind is beside, f"router {behind}, control {beside}; None: no drafts")
    return Check(name, behind > beside - gap, f"router {behind:.1%}, control {beside:.1%}")


def loads_are_verified(counted: _Counted, *, expected: bool, which: str = "") -> Check:
    """Every byte of each load was compared with the producer's; there was one, if that is
    ``expected``."""
    name = f"every {which}load is verified ({WANTED})"
    if isinstance(counted, str):
        return Check(name, False, f"not known: {counted}")
    seen = f"{counted.verified_loads:g} of {counted.loads:g} loads"
    is_all = counted.verified_loads == counted.loads
    return Check(name, is_all and (counted.loads > 0 or not expected), seen)
