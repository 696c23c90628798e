"""What is known to go wrong, and how to tell that it was this and nothing else.

A finding is a section of docs/findings.md with a test of every single violation: a run may fail
only in ways that its expected findings explain, and each of them has to occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sim.kernel import Seed
from sim.model.presets import ModelPreset, get_preset
from sim.oracles import Violation
from sim.outcome import Outcome
from sim.request_ids import logical_id
from sim.scenario import Scenario, workload_of
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

    @property
    def windows(self) -> set[int]:
        specs = self.preset.layer_specs(1, self.scenario.geometry).values()
        return {spec.sliding_window for spec in specs if hasattr(spec, "sliding_window")} - {None}


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


# ------------------------------------------------------------------ the findings


def _window_edge(run: Run, violation: Violation) -> bool:
    """Nothing but the one token before the producer's window, which ends its block."""
    request = run.request_of(violation)
    if violation.oracle != "wrong-bytes" or request is None:
        return False
    edges = [request.prompt_tokens - window for window in run.windows]
    return any(
        edge >= 0
        and (edge + 1) % run.preset.block_size == 0
        and violation.evidence["tokens"] == [edge, edge]
        for edge in edges
    )


def _state_of_whole_blocks(run: Run, violation: Violation) -> RequestSpec | None:
    """The request, if the violation is about its state after a prompt of whole blocks."""
    request = run.request_of(violation)
    if violation.oracle != "wrong-bytes" or request is None or not run.preset.is_hybrid:
        return None
    loaded = request.prompt_tokens - 1
    is_state = violation.evidence["tokens"] == [loaded - 1, loaded - 1]
    return request if is_state and loaded % run.block_size == 0 else None


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
    request = _state_of_whole_blocks(run, violation)
    return request is not None and _was_there_before(run, request)


def _state_copied_over_read(run: Run, violation: Violation) -> bool:
    """Only while the device is busy when the step is launched."""
    request = _state_of_whole_blocks(run, violation)
    is_async = run.scenario.engine.async_scheduling
    return is_async and request is not None and not _was_there_before(run, request)


def _abandoned(run: Run, violation: Violation) -> bool:
    """Blocks of requests whose clients left between the legs, on an idle engine in one process."""
    if run.scenario.engine.executor != "single-process":
        return False
    left = {abort.request for abort in run.scenario.router.aborts if abort.on_phase == "handoff"}
    if violation.oracle == "release-once":
        return logical_id(violation.request_id or "") in left
    held = violation.evidence.get("requests", {})
    return violation.oracle == "leak" and {logical_id(leg) for leg in held} <= left


def _retried(run: Run, violation: Violation) -> bool:
    """About a request whose decode leg was sent again with the transfer id of the first."""
    retries = run.scenario.router.retries
    again = {retry.request for retry in retries if retry.same_transfer_id}
    is_its_kind = violation.oracle in ("wrong-bytes", "use-after-free")
    return is_its_kind and logical_id(violation.request_id or "") in again


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
