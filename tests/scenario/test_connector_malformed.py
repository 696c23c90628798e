"""Transfer parameters that are not what a producer gives: each costs its own request at most.

Every second request of a run gets parameters that are malformed in one way, and the next one is
left alone, so that each case is followed by a request that has to be served.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from variants import has_rings

from sim.model.presets import PRESETS
from sim.probes import Probe
from sim.request_ids import logical_id
from sim.router.ongoing import HandOff
from sim.run import TestBed, run
from sim.scenario import Scenario, UniformWorkload, with_settings
from sim.units import SECOND
from sim.verdict import Corrupt, Verdict

Params = dict[str, Any]
BLOCKS = "remote_block_ids"
HOLD_S = 3
SOON_S = 1.0


@dataclass(frozen=True)
class Case:
    """One way to be malformed.

    ``reason`` is what the log says of it, as a pattern; ``is_named`` whether what is left tells
    where and what to release, so that the producer need not wait for the end of its hold.
    """

    name: str
    change: Callable[[Params], None]
    reason: str
    is_named: bool = True


def _set(key: str, value: Any) -> Callable[[Params], None]:
    return lambda params: params.update({key: value})


def _drop(key: str) -> Callable[[Params], None]:
    return lambda params: params.pop(key)


def _group(number: int, change: Callable[[list[int]], Any]) -> Callable[[Params], None]:
    """Change the block list of one payload entry."""

    def apply(params: Params) -> None:
        params[BLOCKS][number] = change(params[BLOCKS][number])

    return apply


FULL = r"remote_block_ids\[0\], full attention group \(.*\): "
OF_EVERY_MODEL = (
    Case("blocks-missing", _drop(BLOCKS), "remote_block_ids is missing"),
    Case("blocks-no-list", _set(BLOCKS, "blocks"), "is a str; expected a list for each group"),
    Case("blocks-no-groups", _set(BLOCKS, [1, 2]), "is a int|has 2 groups"),
    Case("group-no-list", _group(0, lambda ids: 7), FULL + "is a int; expected a list"),
    Case("id-no-number", _group(0, lambda ids: [str(ids[0]), *ids[1:]]), FULL + ".* not a block"),
    Case("id-negative", _group(0, lambda ids: [-1, *ids[1:]]), FULL + "block id -1 must be"),
    Case(
        "id-twice", _group(0, lambda ids: [ids[0], *ids[:-1]]), FULL + r"block id \d+ is .* twice"
    ),
    Case("id-null", _group(0, lambda ids: [0, *ids[1:]]), "digest differs|no longer has the block"),
    Case("id-beyond-pool", _group(0, lambda ids: [10**6, *ids[1:]]), "digest differs|1000000"),
    Case("group-empty", _group(0, lambda ids: []), "digest differs|full attention .* no block at"),
    Case("group-short", _group(0, lambda ids: ids[:-1]), "digest differs|full .* no block at"),
    Case("group-too-many", lambda params: params[BLOCKS].append([1]), r"has \d groups, but this"),
    Case("transfer-missing", _drop("transfer_id"), "transfer_id is None", is_named=False),
    Case("host-missing", _drop("remote_host"), "remote_host is None", is_named=False),
    Case(
        "host-name",
        _set("remote_host", "p0"),
        "remote_host is 'p0'; expected an IPv4",
        is_named=False,
    ),
    Case("port-missing", _drop("remote_notify_port"), "remote_notify_port is", is_named=False),
    Case("port-no-port", _set("remote_handshake_port", 99_999), "handshake_port", is_named=False),
)
OF_SEVERAL_GROUPS = (
    Case("group-missing", lambda params: params[BLOCKS].pop(), r"has \d groups, but this model"),
    Case("state-empty", _group(-1, lambda ids: []), r"recurrent state .* exactly one .* got 0"),
    Case("state-too-long", _group(-1, lambda ids: [*ids, 1]), "recurrent .* exactly one .* got 2"),
    Case("state-null", _group(-1, lambda ids: [0]), "digest differs|recurrent .* no longer has"),
)
OF_RINGS = (
    Case("ring-empty", _group(1, lambda ids: []), "per-request ring .* exactly one .* got 0"),
)
OF_OUR_PRODUCER = (
    Case("extension-missing", _drop("hybrid"), "router has dropped the key 'hybrid'"),
    Case("version-unknown", lambda p: p["hybrid"].update(version=99), "hybrid.version is 99"),
    Case("incarnation-missing", lambda p: p["hybrid"].pop("incarnation"), "incarnation is None"),
    Case("extension-no-mapping", _set("hybrid", 5), "hybrid is 5; expected a mapping"),
    Case(
        "prompt-longer",
        lambda p: p["hybrid"].update(prompt_tokens=p["hybrid"]["prompt_tokens"] + 1),
        r"the producer's prompt has \d+ tokens, the one here \d+;",
        is_named=False,  # the hold may be that of another prompt, whose consumer needs it
    ),
    Case("prompt-missing", lambda p: p["hybrid"].pop("prompt_tokens"), "prompt_tokens is None"),
    Case("prompt-no-digest", lambda p: p["hybrid"].update(prompt_digest=b"x"), "prompt_digest is"),
    Case("id-huge", _group(0, lambda ids: [2**63, *ids[1:]]), "has more than 64 bits"),
    Case("positions-missing", lambda p: p["hybrid"].pop("first_positions"), "first_positions is"),
)


def cases_of(model: str, producer: str) -> list[Case]:
    """All that can be malformed for a model and a producer.

    With an upstream producer only what still names it: an idle one never lets go of blocks that
    nobody releases (docs/findings.md, a client that goes away during the hand-off).
    """
    preset = PRESETS[model]
    return [
        *(case for case in OF_EVERY_MODEL if case.is_named or producer == "hybrid"),
        *(OF_SEVERAL_GROUPS if preset.is_hybrid else ()),
        *(OF_RINGS if has_rings(preset) else ()),
        *(OF_OUR_PRODUCER if producer == "hybrid" else ()),
    ]


class Malform:
    """Hands request ``req-<2n>`` over with the parameters of case n."""

    def __init__(self, cases: list[Case]) -> None:
        self._by_request = {f"req-{2 * n}": case for n, case in enumerate(cases)}

    def __call__(self, bed: TestBed) -> None:
        bed.router.verdicts.add(self)

    def judge(self, item: Any) -> Verdict | None:
        case = self._by_request.get(item.request_id) if isinstance(item, HandOff) else None
        return None if case is None else Corrupt(lambda params: self._changed(case, params))

    @staticmethod
    def _changed(case: Case, params: Params) -> Params:
        case.change(params)
        return params


@dataclass
class Watch(Probe):
    """When each request's prefill ended for its router, and when the producer let its blocks go;
    what was read for whom."""

    handed_ns: dict[str, int] = field(default_factory=dict)
    freed_ns: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    kernel: Any = None
    died: list[str] = field(default_factory=list)

    def engine_started(self, engine: Any) -> None:
        self.kernel = engine.kernel

    def engine_died(self, node: str, reason: str, **how: Any) -> None:
        self.died.append(f"{node}: {reason}")

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        if node == "d0":
            self.handed_ns.setdefault(logical_id(request_id), self.kernel.now_ns)

    def blocks_freed(self, node: str, request_id: str) -> None:
        if node == "p0":
            self.freed_ns[logical_id(request_id)] = self.kernel.now_ns

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self.outcomes[request_id] = outcome

    def held_s(self, request_id: str) -> float:
        """From the request's admission on the consumer to its release on the producer."""
        return (self.freed_ns[request_id] - self.handed_ns[request_id]) / SECOND


class Events(logging.Handler):
    """What the connector wrote to its log."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(json.loads(record.getMessage()))

    def reasons(self, request_id: str) -> list[str]:
        """Why nothing was loaded for a request."""
        return [
            str(event["reason"])
            for event in self.all
            if event["event"] in ("offer-refused", "load-failed")
            and logical_id(event["request"]) == request_id
        ]


@pytest.fixture
def events() -> Iterator[Events]:
    logger, handler = logging.getLogger("vllm.hybrid_read"), Events()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def serve(model: str, producer: str, policy: str, cases: list[Case], tokens: int) -> Any:
    """The outcome, and what the probe saw."""
    block = PRESETS[model].tokens_per_block()
    workload = UniformWorkload(
        requests=2 * len(cases),
        prompt_tokens=(tokens * block + 5, tokens * block + 5) if tokens else (1, 1),
        output_tokens=(3, 3),
        interval_ms=100.0,
    )
    scenario = with_settings(
        Scenario(model=model, workload=workload),
        {
            "connector": "hybrid",
            "topology.producer_connector": producer,
            "kv_load_failure_policy": policy,
            "extra_config": f"{{defer_timeout: {HOLD_S}, transfer_timeout: 4}}",
            "quiet_phase_s": "30",
        },
    )
    watch = Watch()
    return run(scenario, prepare=Malform(cases), probe=watch).outcome, watch


@pytest.mark.requirement("R10", "R16", "R17")
@pytest.mark.parametrize("policy", ["fail", "recompute"])
@pytest.mark.parametrize(
    ("model", "producer"),
    [
        ("llama", "hybrid"),
        ("llama", "moriio"),
        ("kimi-linear", "hybrid"),
        ("kimi-linear", "moriio"),
        ("glm-flash", "hybrid"),
    ],
)
def test_a_malformed_payload_costs_its_request_at_most(
    model: str, producer: str, policy: str, events: Events
) -> None:
    """It is refused, the log names group and side or the key, the producer is released at once if
    it is still named and else at the end of its hold, both engines live, and the next request is
    served by a load."""
    cases = cases_of(model, producer)
    outcome, watch = serve(model, producer, policy, cases, tokens=2)
    assert outcome.violations == []
    assert watch.died == []
    for number, case in enumerate(cases):
        request, following = f"req-{2 * number}", f"req-{2 * number + 1}"
        assert watch.outcomes[request] == ("error" if policy == "fail" else "length"), case.name
        (reason,) = events.reasons(request)
        assert re.search(case.reason, reason), f"{case.name}: {reason}"
        held_s = watch.held_s(request)
        assert held_s < (SOON_S if case.is_named else HOLD_S + SOON_S), f"{case.name}: {held_s}"
        assert watch.outcomes[following] == "length", case.name
        assert events.reasons(following) == [], case.name


@pytest.mark.requirement("R10", "R11")
@pytest.mark.parametrize("policy", ["fail", "recompute"])
@pytest.mark.parametrize("model", ["llama", "kimi-linear"])
def test_without_tokens_to_load_a_malformed_payload_costs_nothing(
    model: str, policy: str, events: Events
) -> None:
    """A prompt of one token goes on locally, and the producer is released all the same."""
    cases = cases_of(model, "hybrid")
    cases = [case for case in cases if case.name not in ("group-short", "id-twice")]
    outcome, watch = serve(model, "hybrid", policy, cases, tokens=0)
    assert outcome.violations == []
    assert watch.died == []
    assert set(watch.outcomes.values()) == {"length"}
    assert [event for event in events.all if event["event"] == "load-failed"] == []
    for number, case in enumerate(cases):
        held_s = watch.held_s(f"req-{2 * number}")
        assert held_s < (SOON_S if case.is_named else HOLD_S + SOON_S), f"{case.name}: {held_s}"
