"""An entry of the corpus: a public report as a scenario, and what is expected of connectors on it.

An entry is a YAML file in this directory, called after its report. Nothing is run here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import inspect

from faults.schedule import decode
from sim.errors import UsageError
from sim.hints import nearest
from sim.scenario import Scenario, loads
from sim.scenario.schema import explain, place_of
from sim.scenario.yaml_text import print_yaml, read_yaml, where_in_file

DIRECTORY = Path(__file__).parent
UPSTREAM, OWN = "moriio", "hybrid"
Status = Literal["reproduced", "fixed", "not-applicable"]


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run ends: requests counted by outcome, and the rules that are broken.

    A rule is an oracle's name, with the kind of its finding after a slash where it has kinds.
    """

    requests: dict[str, int]
    violations: list[str] = []

    @property
    def requests_in_words(self) -> str:
        """As in ``1 error, 5 length``."""
        return ", ".join(f"{count} {how}" for how, count in self.requests.items())


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What vLLM's connector does, in words and as a run ends."""

    status: Status
    """Whether the report's symptom occurs; rules may be broken in another way, which ``why``
    says."""
    why: str
    expected: Expected
    extra_config: dict[str, Any] = {}
    """Added to the scenario's for this connector only: the mode that the report is about."""


class Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this project's connector has to do, in words, and how its run ends."""

    must: str
    expected: Expected
    falls_short: str | None = None
    """In what it does less than it must; None if in nothing."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the corpus."""

    report: str
    """``owner/repository#number``."""
    symptom: str
    scenario: dict[str, Any]
    """As in a scenario file, without the connector."""
    upstream: Upstream
    hybrid: Own
    schema_version: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.upstream.status == "reproduced" and not self.upstream.expected.violations:
            raise ValueError("upstream breaks no rule, so the report is not 'reproduced'")
        if self.hybrid.expected.violations and self.hybrid.falls_short is None:
            raise ValueError("hybrid breaks rules, and falls_short does not say what it lacks")

    def scenario_with(self, connector: str, *, source: str) -> Scenario:
        """The scenario with ``connector`` under test.

        Raises:
            UsageError: a key or value that a scenario does not accept.
        """
        document: dict[str, Any] = {**self.scenario, "connector": connector}
        if connector == UPSTREAM:
            extra = {**document.get("extra_config", {}), **self.upstream.extra_config}
            document["extra_config"] = extra
        scenario = loads(print_yaml(document), source=source)
        decode(scenario.faults, source=source)
        return scenario

    def expected_of(self, connector: str) -> Expected | None:
        """How a run with ``connector`` ends, if that is known."""
        return {UPSTREAM: self.upstream.expected, OWN: self.hybrid.expected}.get(connector)


def names() -> list[str]:
    """The names of all entries."""
    return sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def load_entry(name: str) -> Entry:
    """The entry called ``name``.

    Raises:
        UsageError: there is none, or its file is not accepted.
    """
    if name not in names():
        hint = nearest(name, names())
        raise UsageError(f"{name}: no such entry{hint}; there are: {', '.join(names())}")
    path = DIRECTORY / f"{name}.yaml"
    document = read_yaml(path)
    try:
        return msgspec.convert(document, Entry)
    except msgspec.ValidationError as error:
        root = inspect.type_info(Entry)
        where = where_in_file(path)(place_of(str(error)))
        raise UsageError(f"{where}: {explain(root, document, str(error))}") from error
