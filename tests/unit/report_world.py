"""Campaign directories and event logs for tests of reports, and what a page is made of."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from faults.campaign.plan import plan_here
from faults.campaign.result import Failure, SeedResult
from faults.campaign.store import RESULTS_FILE, Store
from faults.campaign.swarm import DEFAULT_MODELS, SwarmOptions
from faults.cells import possible_phases
from faults.directories import PLAN_FILE
from faults.kinds import KINDS
from sim.kernel.log import Record

FAILING = ["run", "--set", "num_blocks=50", "--hold", "req-0=2.5", "--set",
           "workload={kind: uniform, requests: 8, prompt_tokens: [256, 256], "
           "output_tokens: [4, 4], interval_ms: 250}",
           "--extra-config", '{"defer_timeout": 0.5}']  # fmt: skip
"""A run that reads blocks which the producer has let go of."""
_VOID = {"meta", "br", "hr", "img", "input", "link"}
_GROUPS = ("wrong-bytes/consumer", "leak/producer", "liveness/not-recovered")


class Page(HTMLParser):
    """A page taken apart: elements by name, text, and whether each that opens is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.tables: list[list[list[tuple[dict[str, str | None], str]]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.tables and self._open and {"td", "th"} & set(self._open):
            attributes, before = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (attributes, before + data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def require_self_contained(self) -> None:
        """No script, nothing that is fetched, and no address but of places in the page."""
        names = {name for name, _ in self.elements}
        assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        for _, attributes in self.elements:
            assert not any(key.startswith("on") for key in attributes)
            for key in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                assert (attributes.get(key) or "#").startswith("#")


def campaign(
    directory: Path,
    count: int,
    connector: str = "moriio",
    seed: int = 0,
    beside: str | None = None,
) -> Path:
    """A campaign of ``count`` results, as a real one leaves them, drawn from ``seed``."""
    rng = random.Random(seed)
    options = SwarmOptions(connector=connector, beside=beside, models=DEFAULT_MODELS[1:])
    store = Store(directory, plan_here(options, range(count), (1, 1)))
    assert (directory / PLAN_FILE).is_file()
    store.add(_result(rng, 0))
    rest = [msgspec.json.encode(_result(rng, number)) + b"\n" for number in range(1, count)]
    with (directory / RESULTS_FILE).open("ab") as file:
        file.writelines(rest)
    return directory


def _result(rng: random.Random, seed: int) -> SeedResult:
    status = rng.choice(("passed", "passed", "failed", "refused", "failed-closed"))
    failing = status == "failed"
    failures = [
        Failure(group, group.partition("/")[0], f"{group} in seed {seed} " + "and more " * 20)
        for group in rng.sample(_GROUPS, rng.randint(1, 3) if failing else 0)
    ]
    coverage = {
        kind: {phase: rng.randint(0, 3) for phase in possible_phases(kind)}
        for kind in rng.sample(sorted(KINDS), 3)
    }
    return SeedResult(
        seed=seed,
        status=status,  # type: ignore[arg-type]
        failures=failures,
        coverage=coverage,
        wall_s=rng.uniform(0.1, 9),
        virtual_s=rng.uniform(0.01, 300),
    )


class Log:
    """Records a millisecond apart."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, actor: str, kind: str, **fields: Any) -> Log:
        self.records.append(Record(len(self.records) * 1_000_000, actor, kind, fields))
        return self

    def held(self, node: str, request: str, *runs: list[int]) -> Log:
        fields = {"node": node, "request": request, "group": 0, "blocks": list(runs)}
        return self.add(f"{node}/core/main", "blocks-held", **fields)

    def freed(self, node: str, request: str) -> Log:
        return self.add(f"{node}/core/main", "blocks-freed", node=node, request=request)
