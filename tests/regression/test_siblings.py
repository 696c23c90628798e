"""Of every finding of docs/findings.md, the same thing happening to this project's connector.

Each breaks no rule: the bytes are right, or the request ends with an error, and nothing is lost.
Where what is wrong lasts, the next request ends with an error as well, which is "not-recovered".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.cli.options import RunOptions, build_scenario
from faults.running import run
from sim.errors import StartRefused
from sim.scenario import Scenario

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()


@dataclass(frozen=True)
class Sibling:
    """What happens.

    Args:
        scenario: by name; two short requests, if there is none.
        faults: besides its own.
        settings: besides its own; a mode that the connector has not is left out.
        refused: what an engine says that does not start with it.
        broken: the rules that are broken nevertheless, and the kinds.
        unfinished: requests that never end.
    """

    scenario: str | None = None
    faults: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    refused: str | None = None
    broken: tuple[tuple[str, str | None], ...] = ()
    unfinished: int = 0

    def build(self) -> Scenario:
        settings = self.settings
        if self.scenario is None:
            settings = (f"workload={_TWO}", "quiet_phase_s=5", "max_virtual_s=60", *settings)
        options = RunOptions(
            scenario=self.scenario,
            faults=self.faults,
            settings=("connector=hybrid", "extra_config.read_mode=true", *settings),
        )
        return build_scenario(options)


_TWO = (
    "{kind: uniform, requests: 2, prompt_tokens: [40, 40], output_tokens: [4, 4], "
    "interval_ms: 100, repeats: 0}"
)
_RECOMPUTE = "kv_load_failure_policy=recompute"
_TWICE = "completion-error:count=1000,request=req-0"
_PREFIX = (
    "workload={kind: inline, requests: ["
    "{request_id: decoding, prompt: [[1, 256], [2, 64]], max_tokens: 100}, "
    "{request_id: fails, prompt: [[1, 256], [3, 64]], max_tokens: 20, arrival_s: 0.2}]}"
)
_LONGEST = (
    "workload={kind: inline, requests: [{request_id: req-0, prompt: [[1, 280]], max_tokens: 40}]}"
)
_LENGTHS = (262, 243, 281, 289, 1, 20)
_REQUESTS = ", ".join(
    f"{{request_id: req-{n}, prompt: [[{n}, {length}]], max_tokens: 1}}"
    for n, length in enumerate(_LENGTHS)
)
_TOGETHER = f"workload={{kind: inline, requests: [{_REQUESTS}]}}"

_LASTS = (("liveness", "not-recovered"),)

SIBLINGS = {
    "late hand-off": Sibling("late-hand-off"),
    "retried hand-off": Sibling("retried-hand-off"),
    "abandoned hand-off": Sibling("abandoned-hand-off"),
    "one failed read": Sibling(faults=("completion-error",)),
    "recompute: a wrong token": Sibling(faults=(_TWICE,), settings=(_RECOMPUTE,)),
    "recompute: no end": Sibling(faults=(_TWICE,), settings=(_RECOMPUTE, _LONGEST)),
    "slow read": Sibling("slow-read", broken=_LASTS),
    "shared prefix": Sibling(
        faults=("completion-error:count=1000,request=fails",), settings=(_RECOMPUTE, _PREFIX)
    ),
    "dead at first contact": Sibling(
        faults=("crash:node=p0,phase=handshake,for_s=5",), settings=("topology.producers=2",)
    ),
    "restarted producer": Sibling(faults=("crash:node=p0,at_s=0.08,for_s=0.01",)),
    "several groups": Sibling(faults=(_TWICE,), settings=("model=gemma-swa",)),
    "no session": Sibling(faults=("no-session",)),
    "half a welcome": Sibling(faults=("message-dropped:node=p0",)),
    "one rank's error": Sibling(
        faults=("control-plane-silent:phase=allocated",),
        settings=(
            "tp_size=2",
            "executor=multi-process",
            "async_scheduling=true",
            "workload.output_tokens=[1, 1]",
        ),
    ),
    "too few blocks": Sibling(faults=("wrong-params:wrong=short-blocks",)),
    "missing parameter": Sibling(faults=("wrong-params:wrong=missing-key",)),
    "nonsense on a port": Sibling(faults=("malformed-message:at_s=0.05,node=p0",)),
    "edge of a window": Sibling("window-edge"),
    "whole blocks twice": Sibling("whole-blocks-twice"),
    "state copied over a read": Sibling("state-copied-over-read"),
    "drafts over a read": Sibling("drafts-over-read"),
    "read before the drafter": Sibling("read-before-drafter"),
    "drafter's row of another": Sibling(
        "drafter-row-of-another",
        broken=(("wrong-bytes", "drafter-row"),),  # of vLLM itself, with every connector
    ),
    "waiting loads": Sibling(  # of vLLM itself, with every connector that does not wait for loads
        faults=("disagreement:node=d0,model=gemma-swa",),
        settings=(_RECOMPUTE, "async_scheduling=false", _TOGETHER, "quiet_phase_s=70"),
        broken=(("liveness", "starved-queue"), ("leak", "starved-queue")),
        unfinished=len(_LENGTHS),
    ),
    "ranks of a dense model": Sibling("dense-data-parallel"),
    "data and tensor parallelism": Sibling("data-and-tensor-parallel"),
    "reads over XGMI": Sibling("xgmi-waits"),
    "rewritten prefix": Sibling("rewritten-prefix"),
    "told too early": Sibling(faults=("early-hand-off:request=req-1,phase=prefill",)),
    "caches of another type": Sibling(
        faults=("disagreement:node=d0,dtype=float16",), broken=_LASTS
    ),
    "WRITE: first token stops": Sibling(
        faults=(
            "stop-token:request=req-1",
            "late-landing:request=req-1,by_s=0.5,count=null",
        )
    ),
    "WRITE: preempted prefill": Sibling("write-preempted"),
    "WRITE: abandoned load": Sibling("write-abandoned-load"),
    "WRITE: first contact": Sibling("write-first-contact"),
    "WRITE: retried": Sibling("write-retried"),
    "WRITE: lost message": Sibling(faults=("message-dropped:at_s=0.05,node=p0",)),
    "WRITE: restarted consumer": Sibling(faults=("crash:node=d0,at_s=0.05,for_s=0.01",)),
    "WRITE: failed write": Sibling("write-failed"),
    "WRITE: told twice": Sibling(faults=("message-duplicated:phase=read_done",)),
    "WRITE: deaf consumer": Sibling(faults=("malformed-message:phase=allocated,node=d0",)),
    "example: in chunks": Sibling("example-in-chunks"),
    "example: two ranks": Sibling("example-two-ranks"),
    "example: missing file": Sibling("example-missing-file"),
}


def test_every_finding_has_a_sibling() -> None:
    """And every section is a finding of the table at the top of the page."""
    rows = re.findall(r"^\| \[([^]]+)\]\((#[^)]+)\) \|", PAGE, re.M)
    assert [name for name, _ in rows] == list(SIBLINGS)
    headings = re.findall(r"^## (.+)$", PAGE, re.M)
    anchors = ["#" + re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]
    assert {anchor for _, anchor in rows} == set(anchors)


@pytest.mark.parametrize("name", SIBLINGS)
def test_the_same_breaks_no_rule_here(name: str) -> None:
    sibling = SIBLINGS[name]
    if sibling.refused is not None:
        with pytest.raises(StartRefused, match=sibling.refused):
            run(sibling.build())
        return
    outcome = run(sibling.build()).result.outcome
    assert {(v.oracle, v.evidence.get("kind")) for v in outcome.violations} == set(sibling.broken)
    assert outcome.requests["unfinished"] == sibling.unfinished
