"""A real trace, and requests like it, through both connectors, in every variant of the engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from trace_variants import (
    TRACE,
    TraceVariant,
    expected_findings,
    row,
    serve,
    trace_variants,
    without_triggers,
)

from tests.scenario.known_findings import missing, unexplained

pytestmark = pytest.mark.soak
needs_trace = pytest.mark.skipif(
    not TRACE.exists(),
    reason=f"no trace at {TRACE}; set FAULTLAB_TRACES to the directory that has it",
)
ALL = list(trace_variants())
RED = {variant.preset.name: variant for variant in reversed(ALL) if expected_findings(variant)}
"""For each model that has one, the first variant with a finding."""


def as_parameters() -> Iterator[object]:
    for variant in ALL:
        marks = [needs_trace] if variant.source == "trace" else []
        yield pytest.param(variant, id=variant.name, marks=marks)


@pytest.mark.parametrize("variant", as_parameters())
def test_a_trace_is_clean_or_ends_in_its_finding(variant: TraceVariant) -> None:
    """Every violation is explained by the finding that docs/soak.md names, and it occurs."""
    expected = expected_findings(variant)
    done = serve(variant.scenario())
    print(row(done))
    assert unexplained(done, expected) == []
    assert missing(done, expected) == []
    assert done.outcome.requests["length"] == done.outcome.requests["total"]


@needs_trace
@pytest.mark.parametrize("variant", RED.values(), ids=lambda variant: variant.name)
def test_without_the_lengths_that_trigger_it_the_trace_is_clean(variant: TraceVariant) -> None:
    """Prompts of those lengths lose one token; nothing else is changed."""
    done = serve(without_triggers(variant.scenario()))
    print(row(done))
    assert done.outcome.violations == []
