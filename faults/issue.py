"""A recorded failure for somebody else's tracker: a text, and one file that shows it by itself.

Neither holds a host's name, an address, a path or a prompt. Prompts are numbers here, but those of
a trace tell which requests had what in common with others elsewhere; they are counted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from faults.artifact import Artifact
from faults.campaign.shrink import with_inline_requests
from faults.grouping import group
from faults.redaction import redacted, redacted_value
from faults.requisites import requisites
from faults.story import subject_of, tell
from sim.kernel.log import Record
from sim.scenario import InlineWorkload, Scenario, dumps
from sim.units import ns_to_seconds
from sim.workload import Segment

REPRODUCER = "reproducer.yaml"
_SHOWN_PER_RULE = 3
_LONGEST_TITLE = 140  # characters
_GETTING_IT = (
    "It takes Linux, Python 3.11 or 3.12, and no GPU. In a checkout of the git repository "
    "`faultlab` ({address}): `make setup` and `source .venv/bin/activate`; or install with pip "
    "what its README lists under Installing, the last of which is `pip install -e .` in that "
    "checkout."
)
_ADDRESS_GOES_HERE = "<address of the repository>"  # as all others would be taken out
_NO_ADDRESS = "ask whoever sent this for it"


@dataclass(frozen=True)
class Issue:
    """The text, and the scenario that shows the failure."""

    scenario: Scenario
    text: str

    @property
    def reproducer(self) -> str:
        """The scenario as the content of a file."""
        return dumps(self.scenario)


def self_contained(scenario: Scenario) -> Scenario:
    """``scenario`` with its requests written out, and without anything of where it came from.

    Equal content stays equal, whatever it is called. An overlay cannot come along.
    """
    scenario = with_inline_requests(scenario)
    assert isinstance(scenario.workload, InlineWorkload)
    numbers: dict[int, int] = {}
    requests = tuple(
        msgspec.structs.replace(
            request,
            prompt=tuple(
                Segment(numbers.setdefault(content, len(numbers) + 1), count)
                for content, count in request.prompt
            ),
        )
        for request in scenario.workload.requests
    )
    return msgspec.structs.replace(
        scenario,
        overlay=None,
        extra_config=redacted_value(scenario.extra_config),
        workload=InlineWorkload(requests),
    )


def write(
    recorded: Artifact,
    records: Sequence[Record],
    scenario: Scenario,
    *,
    what: str,
    again: str,
    has_overlay: bool,
    repository: str | None = None,
) -> Issue:
    """The issue about a recorded failure.

    Args:
        recorded: the artifact of the run.
        records: its event log.
        scenario: the reproducer, self-contained.
        what: what ran, in a line.
        again: how the reproducer went when it was run here.
        has_overlay: whether the run took sources that the reproducer does not bring along.
        repository: where faultlab can be had, which is printed as it is.
    """
    overlay = "\nThe run took patched sources, which are not part of this.\n" if has_overlay else ""
    story = [
        f"{ns_to_seconds(moment.time_ns):14.6f} s  {moment.text}"
        for moment in tell(records, recorded.violations)
    ]
    versions = [f"| {name} | {version} |" for name, version in recorded.versions.items()]
    parts = [
        f"# {_title(recorded, records)}",
        f"{what}; rules that were broken: {', '.join(recorded.signature)}.",
        "Found with faultlab, which runs vLLM's own scheduler and the connector, unmodified, on a "
        f"simulated network and GPU. Times are virtual.\n{overlay}",
        "## What is wrong",
        "\n".join(f"- {sentence}" for sentence in _sentences(recorded)),
        "## How it came about",
        "```text\n" + "\n".join(story) + "\n```",
        "## To see it",
        _GETTING_IT.format(address=_ADDRESS_GOES_HERE),
        *requisites(scenario),
        f"Save the attached `{REPRODUCER}`, then:",
        f"```console\n$ faultlab run {REPRODUCER} --out failing\n```",
        f"{again} The run prints its story, and `failing/report.html` draws it. "
        "`faultlab replay failing` takes the same way once more, to the last event.",
        "## Versions",
        "\n".join(["| what | version or hash |", "|---|---|", *versions]),
        f"Sources under test `{recorded.guest_digest}`, event hash `{recorded.event_hash}`.",
    ]
    text = redacted("\n\n".join(part.strip("\n") for part in parts)) + "\n"
    return Issue(scenario, text.replace(_ADDRESS_GOES_HERE, repository or _NO_ADDRESS))


def _title(recorded: Artifact, records: Sequence[Record]) -> str:
    """The rule of which the breach says most, and what was found in a few words."""
    told = subject_of(recorded.violations, records).violation
    (finding,) = (found for found in group(recorded.violations) if told in found.violations)
    what = finding.sentence.partition("; ")[0]
    if extent := told.evidence.get("extent"):
        owners = [f"those of {', '.join(extent['owners'])}"] if extent["owners"] else []
        found = ", ".join([*owners, *extent.get("found", ())])
        what = f"{told.node} read wrong bytes for {told.request_id}: {found}"
    title = f"{told.oracle}: {what}"
    return title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}..."


def _sentences(recorded: Artifact) -> list[str]:
    shown: dict[str, list[str]] = {}
    for finding in group(recorded.violations):
        shown.setdefault(finding.oracle, []).append(f"**{finding.oracle}**: {finding.sentence}")
    return [sentence for sentences in shown.values() for sentence in sentences[:_SHOWN_PER_RULE]]
