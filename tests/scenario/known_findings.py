"""What is known to go wrong, and how to tell that it was this and nothing else.

A finding is a section of docs/findings.md with a test of every single violation: a run may fail
only in ways that its expected findings explain, and each of them has to occur.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from vllm.v1.kv_cache_interface import KVCacheSpec, MambaSpec

from sim.kernel import Seed
from sim.model.presets import ModelPreset, get_preset
from sim.oracles import Violation
from sim.outcome import Outcome
from sim.request_ids import leg_kind, logical_id
from sim.scenario import Scenario, workload_of
from sim.units import ns_to_seconds
from sim.workload import RequestSpec, prompt_token_ids


@dataclass(frozen=True)
class Run:
    """A scenario and what came of it."""

    scenario: Scenario
    outcome: Outcome

    @cached_property
    def preset(self) -> ModelPreset:
        return get_preset(self.scenario.model)

    @cached_property
    def requests(self) -> dict[str, RequestSpec]:
        rng = Seed(self.scenario.seed).stream("workload")
        return {spec.request_id: spec for spec in workload_of(self.scenario, rng)}

    def request_of(self, violation: Violation) -> RequestSpec | None:
        """The client's request that the violation is about."""
        return self.requests.get(logical_id(violation.request_id or ""))

    @property
    def block_size(self) -> int:
        return self.preset.tokens_per_block(self.scenario.engine.tp_size, self.scenario.geometry)

    @cached_property
    def _layers(self) -> dict[str, KVCacheSpec]:
        return self.preset.layer_specs(1, self.scenario.geometry)

    @property
    def windows(self) -> set[int]:
        specs = self._layers.values()
        return {spec.sliding_window for spec in specs if hasattr(spec, "sliding_window")} - {None}

    def layers_with_window(self, window: int) -> set[str]:
        layers = self._layers.items()
        return {name for name, spec in layers if getattr(spec, "sliding_window", None) == window}

    @property
    def state_layers(self) -> set[str]:
        return {name for name, spec in self._layers.items() if isinstance(spec, MambaSpec)}


Explains = Callable[[Run, Violation], bool]


@dataclass(frozen=True)
class Finding:
    """``anchor`` is its heading in docs/findings.md, as links write it."""

    name: str
    anchor: str
    explains: Explains


def unexplained(run: Run, expected: Sequence[Finding]) -> list[Violation]:
    """The violations that none of the findings explains. A wrong output is explained by the wrong
    bytes that were read for it."""
    explained = {id(v) for v in run.outcome.violations if any(f.explains(run, v) for f in expected)}
    spoilt = {
        logical_id(violation.request_id or "")
        for violation in run.outcome.violations
        if violation.oracle == "wrong-bytes" and id(violation) in explained
    }
    return [
        violation
        for violation in run.outcome.violations
        if id(violation) not in explained
        and not (violation.oracle == "same-output" and violation.request_id in spoilt)
    ]


def missing(run: Run, expected: Iterable[Finding]) -> list[str]:
    """The findings that explain nothing of what happened."""
    violations = run.outcome.violations
    return [f.name for f in expected if not any(f.explains(run, v) for v in violations)]


# ------------------------------------------------------------------ the evidence


@dataclass(frozen=True)
class _Origin:
    """How the wrong bytes of a violation came there; of several blocks it tells of the first.

    ``copied_s`` is the time of a state copy for the reading leg that was the last write,
    ``landed_s`` that of the last transfer, and ``holder`` who held the source block then, or had.
    """

    copied_s: float | None = None
    landed_s: float | None = None
    holder: str | None = None


_COPIED = re.compile(
    r"block \d+ was last written at (\S+) s by the state copy from block \d+ for (\S+) on (\S+)"
)
_LANDED = re.compile(r"the last transfer into it, \d+, copied block \d+ of \S+ at (\S+) s")
_HELD = re.compile(r"block \d+ of \S+ was (?:free, and before that )?held by (\S+) then")


def _origin(violation: Violation) -> _Origin:
    copied_s = landed_s = holder = None
    for line in violation.evidence["chain"]:
        if match := _COPIED.fullmatch(line):
            at, leg, node = match.groups()
            is_own = (leg, node) == (violation.request_id, violation.node)
            copied_s = float(at) if is_own else None
        elif match := _LANDED.fullmatch(line):
            landed_s = float(match[1])
        elif match := _HELD.fullmatch(line):
            holder = logical_id(match[1])
    return _Origin(copied_s, landed_s, holder)


def _read_on_a_consumer(violation: Violation) -> bool:
    return violation.oracle == "wrong-bytes" and leg_kind(violation.request_id or "") == "d"


def _only(violation: Violation, token: int, layers: set[str]) -> bool:
    """Whether nothing but this token of these layers was wrong, in what is not listed either."""
    evidence = violation.evidence
    extent = evidence.get("extent", {"layers": [evidence["layer"]], "tokens": evidence["tokens"]})
    is_token = evidence["tokens"] == extent["tokens"] == [token, token]
    return is_token and {evidence["layer"], *extent["layers"]} <= layers


# ------------------------------------------------------------------ the findings


def _window_edge(run: Run, violation: Violation) -> bool:
    """Nothing but the one token before the producer's window, which ends its block and was not
    sent for this request."""
    request = run.request_of(violation)
    if not _read_on_a_consumer(violation) or request is None:
        return False
    if _origin(violation).holder == request.request_id:
        return False
    return any(
        (edge := request.prompt_tokens - window) >= 0
        and (edge + 1) % run.preset.block_size == 0
        and _only(violation, edge, run.layers_with_window(window))
        for window in run.windows
    )


def _state_of_whole_blocks(run: Run, violation: Violation) -> RequestSpec | None:
    """The request, if the violation is about nothing but its state after a prompt of whole blocks,
    in the block that a copy for this very leg was the last to write."""
    request = run.request_of(violation)
    if not _read_on_a_consumer(violation) or request is None:
        return None
    loaded = request.prompt_tokens - 1
    is_its_state = _only(violation, loaded - 1, run.state_layers)
    was_copied = _origin(violation).copied_s is not None
    return request if is_its_state and was_copied and loaded % run.block_size == 0 else None


def _landed_before_the_copy(violation: Violation, request: RequestSpec) -> bool:
    """Whether the request's own state was there when the copy went over it."""
    origin = _origin(violation)
    if origin.holder != request.request_id:
        return False
    assert origin.landed_s is not None
    assert origin.copied_s is not None
    return origin.landed_s < origin.copied_s


def _was_there_before(run: Run, request: RequestSpec) -> bool:
    """Whether an earlier request had the same prompt but for its last token."""
    loaded = request.prompt_tokens - 1
    prompt = prompt_token_ids(request)[:loaded].tolist()
    for other in run.requests.values():
        if other.request_id == request.request_id:
            return False
        if prompt_token_ids(other)[:loaded].tolist() == prompt:
            return True
    return False


def _whole_blocks_twice(run: Run, violation: Violation) -> bool:
    """The state was taken from the block that was never filled; the read came too late."""
    request = _state_of_whole_blocks(run, violation)
    if request is None or _landed_before_the_copy(violation, request):
        return False
    return _was_there_before(run, request)


def _state_copied_over_read(run: Run, violation: Violation) -> bool:
    """Only while the device is busy when the step is launched."""
    request = _state_of_whole_blocks(run, violation)
    if request is None or not _landed_before_the_copy(violation, request):
        return False
    return run.scenario.engine.async_scheduling and not _was_there_before(run, request)


def _abandoned(run: Run, violation: Violation) -> bool:
    """Blocks of requests whose clients left between the legs, on an idle engine in one process."""
    if run.scenario.engine.executor != "single-process":
        return False
    left = {abort.request for abort in run.scenario.router.aborts if abort.on_phase == "handoff"}
    if violation.oracle == "release-once":
        leg = violation.request_id or ""
        is_its_kind = violation.evidence["kind"] == "never-released" and leg_kind(leg) == "p"
        return is_its_kind and logical_id(leg) in left
    return violation.oracle == "leak" and _holds_all_that_is_missing(violation, left)


def _holds_all_that_is_missing(violation: Violation, left: set[str]) -> bool:
    """Whether prefill legs of these requests, and nobody else, hold every block not free."""
    legs = violation.evidence["requests"]
    held = sum(int(count) for count in re.findall(r"\) holds (\d+)", violation.detail))
    are_theirs = all(leg_kind(leg) == "p" and logical_id(leg) in left for leg in legs)
    missing_blocks = violation.evidence["idle"] - violation.evidence["free"]
    return bool(legs) and are_theirs and held >= missing_blocks


def _retried(run: Run, violation: Violation) -> bool:
    """What landed on a consumer after its decode leg was sent again with the transfer id of the
    first, from blocks that were somebody else's by then."""
    request = run.request_of(violation)
    if request is None or not _read_on_a_consumer(violation):
        return False
    again = [
        ns_to_seconds(request.arrival_ns) + retry.after_s
        for retry in run.scenario.router.retries
        if retry.same_transfer_id and retry.request == request.request_id
    ]
    origin = _origin(violation)
    is_foreign = origin.holder not in (None, request.request_id)
    is_after = origin.landed_s is not None and any(origin.landed_s > at_s for at_s in again)
    owners = {violation.evidence["owner"], *violation.evidence.get("extent", {}).get("owners", ())}
    is_own = request.request_id in {logical_id(owner) for owner in owners if owner}
    return is_foreign and is_after and not is_own


WINDOW_EDGE = Finding(
    "window-edge", "the-token-at-the-edge-of-a-sliding-window-is-not-sent", _window_edge
)
WHOLE_BLOCKS_TWICE = Finding(
    "whole-blocks-twice",
    "a-hybrid-prompt-of-whole-blocks-and-one-token-sent-twice",
    _whole_blocks_twice,
)
STATE_COPIED_OVER_READ = Finding(
    "state-copied-over-read",
    "a-state-copy-that-was-queued-before-the-read-lands-after-it",
    _state_copied_over_read,
)
ABANDONED_HAND_OFF = Finding(
    "abandoned-hand-off", "a-client-that-goes-away-during-the-hand-off", _abandoned
)
RETRIED_HAND_OFF = Finding("retried-hand-off", "a-hand-off-that-is-sent-again", _retried)

FINDINGS = (
    WINDOW_EDGE,
    WHOLE_BLOCKS_TWICE,
    STATE_COPIED_OVER_READ,
    ABANDONED_HAND_OFF,
    RETRIED_HAND_OFF,
)
