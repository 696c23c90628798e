"""A real trace through vLLM's MoRIIO connector, in every engine variant that vLLM accepts."""

from __future__ import annotations

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

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not TRACE.exists(),
        reason=f"no trace at {TRACE}; set FAULTLAB_TRACES to the directory that has it",
    ),
]
ALL = list(trace_variants())
RED = {variant.preset.name: variant for variant in reversed(ALL) if expected_findings(variant)}
"""For each model that has one, the first variant with a finding."""


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_a_trace_is_clean_or_ends_in_its_finding(variant: TraceVariant) -> None:
    """Every violation is explained by the finding that docs/soak.md names, and it occurs."""
    expected = expected_findings(variant)
    done = serve(variant.scenario())
    print(row(done))
    assert unexplained(done, expected) == []
    assert missing(done, expected) == []
    assert done.outcome.requests["length"] == done.outcome.requests["total"]


@pytest.mark.parametrize("variant", RED.values(), ids=lambda variant: variant.name)
def test_without_the_lengths_that_trigger_it_the_trace_is_clean(variant: TraceVariant) -> None:
    """Prompts of those lengths lose one token; nothing else is changed."""
    done = serve(without_triggers(variant.scenario()))
    print(row(done))
    assert done.outcome.violations == []
