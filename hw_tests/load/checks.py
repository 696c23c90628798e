"""What has to be true of a phase, each check with what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hw_tests.load.send import Reply
from hw_tests.load.verified import WANTED
from hw_tests.recall.counters import Counters

_GATEWAY = (500, 502, 503, 504)
_Counted = Counters | str
_NO_CONNECTOR = "not known: the decode engine does not count loads; needed HybridReadConnector"


@dataclass(frozen=True)
class Check:
    """One thing that has to be true.

    Args:
        name: what it is.
        passed: whether it was so; None if nothing was there by which it could have been seen.
        seen: instead of words for it.
    """

    name: str
    passed: bool | None
    seen: str


def all_served(name: str, replies: Sequence[Reply]) -> Check:
    """Every request has an answer."""
    lost = [reply for reply in replies if not reply.served]
    first = f"; {lost[0].name}: {lost[0].error}" if lost else ""
    served = len(replies) - len(lost)
    return Check(name, bool(served) and not lost, f"{served} of {len(replies)} served{first}")


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


def act_was_met(replies: Sequence[Reply], gone_s: float, back_s: float) -> Check:
    """A request failed, or was asked while the engine was away; others tell nothing of that.

    Args:
        replies: of the router.
        gone_s, back_s: when the engine went, and was ready again, on the clock of the replies.
    """
    met = [
        reply for reply in replies
        if gone_s <= reply.began_s <= back_s or (not reply.served and reply.ended_s >= gone_s)
    ]  # fmt: skip
    seen = f"{len(met)} of {len(replies)} failed or began in those {back_s - gone_s:.1f} s"
    seen += "" if met else "; send more, with --requests, or stay away longer, with --away"
    return Check("requests meet the engine that is away", True if met else None, seen)


def same_answers(replies: Sequence[Reply], control: Sequence[Reply], *, exact: bool) -> Check:
    """What was served reads as the control's; only counted unless ``exact``, because sums are
    rounded otherwise in other batches."""
    pairs = [(one, other) for one, other in zip(replies, control, strict=True)
             if one.served and other.served]  # fmt: skip
    differ = [one.name for one, other in pairs if one.text != other.text]
    seen = f"{len(pairs) - len(differ)} of {len(pairs)} the same"
    if differ:
        seen += f"; first other: {differ[0]}"
    return Check("answers are the control's", (not differ or not exact) if pairs else None, seen)


def blocks_were_read(counted: _Counted, *, expected: bool) -> Check:
    """The decode engine loaded what was handed over and no load failed; if that is not
    ``expected``, it may have had all of it."""
    name = "blocks are read, and no read fails"
    if isinstance(counted, str):
        return Check(name, False, f"not known: {counted}")
    if counted.loads is None or counted.failed_loads is None:
        return Check(name, False, _NO_CONNECTOR)
    seen = f"{counted.loads:g} loads, and {counted.failed_loads:g} that failed"
    return Check(name, counted.failed_loads == 0 and (counted.loads > 0 or not expected), seen)


def control_loads_nothing(counted: _Counted) -> Check:
    """Or it answers from what was handed over, as a decode engine under another address does."""
    name = "the control loads nothing"
    if isinstance(counted, str):
        return Check(name, False, f"not known: {counted}")
    counts = (counted.loads, counted.failed_loads)
    if counts == (None, None):
        return Check(name, True, "it has no such metrics, so no connector that counts")
    seen = "{} loads, and {} that failed".format(*map(_number, counts))
    return Check(name, counts == (0, 0), seen)


def drafts_are_accepted(
    router: _Counted, control: _Counted, gap: float, *, expected: bool
) -> Check:
    """As many of the drafts behind the router as of the control's, but for ``gap``; there are none,
    if they are not ``expected``."""
    name = "drafts are accepted as often as the control's"
    if isinstance(router, str) or isinstance(control, str):
        unknown = router if isinstance(router, str) else control
        return Check(name, False, f"not known: {unknown}")
    behind, beside = router.acceptance, control.acceptance
    seen = f"router {_share(behind)}, control {_share(beside)}"
    if behind is beside is None:
        seen += "; if engines do not speculate, say --no-drafts" if expected else ""
        return Check(name, None if expected else True, seen)
    if not expected:
        return Check(name, False, f"{seen}, against --no-drafts")
    is_alike = behind is not None and beside is not None and behind > beside - gap
    return Check(name, is_alike, seen)


def loads_are_verified(counted: _Counted, *, expected: bool, which: str = "") -> Check:
    """Every byte of each load was compared with the producer's; there was one, if that is
    ``expected``."""
    name = f"every {which}load is verified ({WANTED})"
    if isinstance(counted, str):
        return Check(name, False, f"not known: {counted}")
    if counted.loads is None or counted.verified_loads is None:
        return Check(name, False, _NO_CONNECTOR)
    seen = f"{counted.verified_loads:g} of {counted.loads:g} loads"
    is_all = counted.verified_loads == counted.loads
    return Check(name, is_all and (counted.loads > 0 or not expected), seen)


def _number(count: float | None) -> str:
    return "uncounted" if count is None else f"{count:g}"


def _share(share: float | None) -> str:
    return "no drafts" if share is None else f"{share:.1%}"
