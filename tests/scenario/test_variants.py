"""Every model through every setup and variant: clean, or wrong in a way that has a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from known_findings import (
    ABANDONED_HAND_OFF,
    FINDINGS,
    RETRIED_HAND_OFF,
    STATE_COPIED_OVER_READ,
    WHOLE_BLOCKS_TWICE,
    WINDOW_EDGE,
    Finding,
    Run,
    missing,
    unexplained,
)
from variants import SETUPS, VARIANTS, Case, as_parameters, cases, refused, windows

from sim.errors import UsageError
from sim.model.presets import ModelPreset
from sim.run import run


@dataclass(frozen=True)
class Known:
    """Which cases end in a finding: those of these models, setups and variants."""

    finding: Finding
    setups: tuple[str, ...]
    variants: tuple[str, ...]
    models: Callable[[ModelPreset], bool] = lambda preset: True

    def applies_to(self, case: Case) -> bool:
        return (
            case.setup.name in self.setups
            and case.variant.name in self.variants
            and self.models(case.preset)
        )


def has_windows(preset: ModelPreset) -> bool:
    return bool(windows(preset))


def is_hybrid(preset: ModelPreset) -> bool:
    return preset.is_hybrid


FINDINGS_PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
MORIIO = ("moriio-read",)
# One of the six prompts of `alone` ends where a window's edge ends a block, and one of `together`.
ALONE = ("retried-with-the-same-id", "retried-with-a-new-id", "held")
KNOWN = (
    Known(WINDOW_EDGE, MORIIO, ("edges", "scarce-blocks", *ALONE), has_windows),
    Known(WHOLE_BLOCKS_TWICE, MORIIO, ("edges",), is_hybrid),
    Known(STATE_COPIED_OVER_READ, MORIIO, ("whole-blocks-while-decoding",), is_hybrid),
    Known(ABANDONED_HAND_OFF, MORIIO, ("aborts",)),
    Known(RETRIED_HAND_OFF, MORIIO, ("retried-with-the-same-id",)),
)


@pytest.mark.requirement("R8", "R14")
@pytest.mark.parametrize("case", as_parameters(cases()))
def test_every_case_is_clean_or_a_known_finding(case: Case) -> None:
    """Outputs equal the definition, nothing wrong is read, everything is released; or each broken
    rule is explained by a finding that is expected here, and each expected one occurs."""
    expected = [known.finding for known in KNOWN if known.applies_to(case)]
    scenario = case.scenario()
    done = Run(scenario, run(scenario).outcome)
    assert unexplained(done, expected) == []
    assert missing(done, expected) == []
    requests = done.outcome.requests
    aborted = requests.get("abort", 0)
    assert requests["unfinished"] == 0
    assert aborted <= len(scenario.router.aborts)
    assert requests.get("length", 0) + aborted == requests["total"]


@pytest.mark.parametrize("case", as_parameters(refused()))
def test_what_a_setup_does_not_serve_is_refused_at_start_up(case: Case) -> None:
    """No model is left out of the suite that would run."""
    with pytest.raises(UsageError, match="refused to start"):
        run(case.scenario())


def test_every_finding_is_explained_in_the_documents() -> None:
    """Under the heading that it is known by."""
    titles = re.findall(r"^## (.+)$", FINDINGS_PAGE.read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    assert {finding.anchor for finding in FINDINGS} <= anchors


def test_every_finding_is_expected_somewhere() -> None:
    """A line of the tables that matches no case would never be noticed."""
    for known in KNOWN:
        assert any(known.applies_to(case) for case in cases()), known.finding.name
    assert {known.finding for known in KNOWN} == set(FINDINGS)
    assert {name for known in KNOWN for name in known.setups} <= {setup.name for setup in SETUPS}
    assert {name for known in KNOWN for name in known.variants} <= {v.name for v in VARIANTS}
