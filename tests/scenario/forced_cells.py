"""Scenes in which faults of single items can be made to reach requests in every possible phase.

Most phases come about by themselves. For the others somebody has to be late: a chain of work
requests that waits at a link until its blocks belong to another request, a consumer that is told
early, a session that is opened again while others are under way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.mutants.catalog import MUTANTS
from faults.running import run
from faults.schedule import with_faults
from sim.lifecycle import Phase
from sim.scenario import Scenario, UniformWorkload, with_settings

CLOSE_TOGETHER = Scenario(
    workload=UniformWorkload(
        requests=8, prompt_tokens=(100, 300), output_tokens=(4, 8), interval_ms=10.0
    ),
    extra_config={"transfer_timeout": 1},
    quiet_phase_s=0.0,
    max_virtual_s=0.8,
)
UNFENCED = "queue-pair-not-destroyed"
"""The mutant that gives blocks up while reads may still land in them."""


@dataclass(frozen=True)
class Scene:
    """Settings, as of --set, and what goes wrong besides the fault that is to hit.

    ``request`` is the one to aim at; None is each of them.
    """

    settings: Mapping[str, str]
    disturbances: Sequence[str] = ()
    request: str | None = None
    unfenced: bool = False

    def hit(self, kind: str, aim: str, phases: Sequence[Phase], overlays: Path) -> set[str]:
        """Aim faults of ``kind`` at ``phases``; returns the phases that were hit.

        Args:
            aim: the fault, with places for ``phase`` and ``request``.
            overlays: an empty directory for a connector with a defect, or one that this made.
        """
        scenario = with_settings(CLOSE_TOGETHER, self.settings)
        if self.unfenced:
            MUTANTS[UNFENCED].write(overlays)
            scenario = with_settings(scenario, {"overlay": json.dumps(str(overlays))})
        every = [f"req-{number}" for number in range(scenario.workload.requests)]
        aims = [
            aim.format(kind=kind, phase=phase, request=request)
            for phase in phases
            for request in ([self.request] if self.request else every)
        ]
        row = run(with_faults(scenario, [*self.disturbances, *aims])).coverage[kind]
        return {phase for phase, count in row.items() if count}


_READ, _WRITE = {"seed": "0"}, {"extra_config.read_mode": "'false'"}
_HYBRID = {"connector": "hybrid"}
_SPECULATING = {
    "model": "deepseek-mla",
    "speculation": "{method: mtp, num_speculative_tokens: 1}",
}
_GIVES_UP = {**_HYBRID, "kv_load_failure_policy": "recompute", "num_blocks": "24"}
_CROWD = {**_HYBRID, "workload.interval_ms": "4", "workload.requests": "24"}
_RECOMPUTES = {**_HYBRID, "kv_load_failure_policy": "recompute"}
_TELLS_ALL_EARLY = [
    f"early-hand-off:phase=queued_at_p,request=req-{number}" for number in (1, 2, 3)
]
_TWO_WRITING_RANKS = {
    **_WRITE,
    **_SPECULATING,
    "tp_size": "2",
    "executor": "multi-process",
    "workload.requests": "3",
}
_ONE_MEETS_LATE = "message-delayed:by_ms=20,skip=2"
_THREE_LEAVE = [f"abort:phase=read_posted,request=req-{number}" for number in (5, 8, 11)]

SCENES = {
    "read": Scene(_READ),
    "write": Scene(_WRITE),
    "hybrid": Scene(_HYBRID),
    # Of a request that was aborted writes are left, and its blocks are somebody else's.
    "stale-write": Scene(
        {**_WRITE, "num_blocks": "32"},
        [
            "link-down:node=p0,phase=read_posted,nth=2,for_s=0.2",
            "abort:phase=read_posted,nth=2",
            "slow-steps:node=p0,factor=20,for_s=0.1,phase=queued_at_d",
            "slow-steps:node=p0,factor=20,for_s=0.02,phase=finished",
        ],
        request="req-3",
    ),
    "stale-write-before-handshake": Scene(
        {**_WRITE, "topology.consumers": "2", "num_blocks": "60"},
        [
            "bandwidth-reduced:node=p0,phase=prefill,nth=3,fraction=0.0001",
            "abort:phase=read_posted,nth=3",
            "pause:node=d0,phase=queued_at_p,for_s=0.1",
        ],
    ),
    "aborted-write": Scene(
        {**_WRITE, "num_blocks": "60", "workload.interval_ms": "2", "workload.requests": "6"},
        [
            "link-down:node=p0,phase=read_posted,nth=3,for_s=0.05",
            "abort:phase=read_posted,nth=3",
        ],
        request="req-5",
    ),
    # The same for reads, which takes a connector that does not wait for them.
    "stale-read": Scene(
        {**_GIVES_UP, "extra_config": "{transfer_timeout: 0.02, fence_timeout: 30}"},
        ["link-down:node=d0,phase=read_posted,nth=3,for_s=0.1"],
        unfenced=True,
    ),
    "stale-read-of-one-told-early": Scene(
        {
            **_GIVES_UP,
            "workload.interval_ms": "30",
            "workload.output_tokens": "[20, 40]",
            "extra_config": "{transfer_timeout: 0.02, fence_timeout: 30}",
        },
        [
            "link-down:node=d0,phase=read_posted,for_s=0.2",
            "abort:phase=decode,request=req-0",
            "small-pool:node=p0,at_s=0.028,for_s=0.3",
            "early-hand-off:phase=queued_at_p,request=req-1",
        ],
        unfenced=True,
    ),
    "stale-read-of-one-read": Scene(
        {
            **_GIVES_UP,
            "num_blocks": "40",
            "workload.interval_ms": "5",
            "workload.requests": "6",
            "enable_prefix_caching": "false",
            "extra_config": "{transfer_timeout: 0.04, fence_timeout: 30}",
        },
        [
            "link-down:node=d0,phase=read_posted,nth=3,for_s=0.05",
            "small-pool:node=p0,phase=handshake,for_s=0.005",
            "early-hand-off:phase=prefill,request=req-2",
        ],
        request="req-5",
        unfenced=True,
    ),
    "crowd": Scene(_CROWD),
    # Peers talk while requests are in all phases.
    "renewals": Scene(
        {**_CROWD, "extra_config": "{defer_timeout: 0.2, renewal_timeout: 0.01}"},
        [
            "bandwidth-reduced:node=d0,fraction=0.0005,at_s=0.01,for_s=0.1",
            "small-pool:node=d0,at_s=0.12,for_s=0.05",
            *_THREE_LEAVE,
        ],
    ),
    "new-sessions": Scene(
        {**_CROWD, "num_blocks": "100", "extra_config": "{transfer_timeout: 0.05}"},
        [
            "completion-lost:phase=read_posted,nth=3",
            "bandwidth-reduced:node=d0,fraction=0.0005,at_s=0.03,for_s=0.3",
            "abort:phase=read_posted,nth=5",
            "abort:phase=read_posted,nth=7",
            "queue-pair-error:node=p0,peer=d0,phase=read_done,nth=2",
            "queue-pair-error:node=p0,peer=d0,phase=read_done,nth=4",
            "queue-pair-error:node=p0,peer=d0,phase=read_posted,nth=9",
            "message-delayed:phase=read_done,by_ms=200,count=10,nth=2",
        ],
    ),
    "two-ranks": Scene(
        {**_HYBRID, "tp_size": "2", "executor": "multi-process"},
        [
            "bandwidth-reduced:node=d0,fraction=0.0003,for_s=0.2",
            "message-delayed:by_ms=2,skip=1",
        ],
    ),
    "first-contact": Scene(
        {
            **_WRITE,
            "num_blocks": "30",
            "workload.interval_ms": "1",
            "workload.requests": "3",
        }
    ),
    # A producer that writes tells the consumer when it has waited for its blocks in vain.
    "given-up": Scene(
        {
            **_WRITE,
            "model": "qwen-hybrid",
            "workload.requests": "1",
            "extra_config.defer_timeout": "0.2",
        },
        ["router-hold:seconds=0.5,phase=queued_at_p"],
    ),
    "told-early": Scene(
        {
            **_READ,
            "topology.consumers": "2",
            "num_blocks": "40",
            "workload.interval_ms": "5",
            "workload.output_tokens": "[20, 40]",
        },
        ["early-hand-off:phase=prefill,request=req-0"],
    ),
    "first-contact-of-the-second": Scene(
        {
            **_WRITE,
            **_SPECULATING,
            "topology.producers": "2",
            "workload.interval_ms": "60",
            "enable_prefix_caching": "false",
        },
        ["pause:node=p0,phase=read_done,for_s=0.02", "completion-lost:phase=allocated"],
    ),
    # A producer's GPU has more to do after sampling.
    "speculating-writes": Scene({**_WRITE, **_SPECULATING}),
    "speculating-write-ends": Scene(
        {**_WRITE, **_SPECULATING}, ["abort:phase=prefill,request=req-4"], request="req-4"
    ),
    "speculating-and-told-early": Scene(
        {
            **_READ,
            **_SPECULATING,
            "workload.prompt_tokens": "[1000, 1200]",
            "workload.output_tokens": "[20, 40]",
            "max_num_batched_tokens": "256",
        },
        [
            "slow-steps:node=p0,factor=20",
            "early-hand-off:phase=prefill,request=req-0",
            "early-hand-off:phase=prefill,request=req-1",
        ],
    ),
    # One rank of a producer writes while the other still waits for its consumer's welcome.
    "writing-ranks": Scene(_TWO_WRITING_RANKS, [_ONE_MEETS_LATE]),
    "writing-ranks-posted": Scene(
        _TWO_WRITING_RANKS, [_ONE_MEETS_LATE, "latency-spike:by_us=40000,count=null"]
    ),
    "writing-ranks-in-flight": Scene(
        _TWO_WRITING_RANKS, [_ONE_MEETS_LATE, "latency-spike:by_us=40000,skip=1"]
    ),
    # What was given up lands while those who have its blocks wait for a slower producer.
    "stale-read-of-one-posted": Scene(
        {
            **_GIVES_UP,
            "topology.producers": "2",
            "num_blocks": "32",
            "extra_config": "{transfer_timeout: 0.1, fence_timeout: 30}",
        },
        [
            "link-down:node=p0,phase=read_posted,for_s=0.2",
            "latency-spike:node=d0,peer=p1,count=null,by_us=300000",
        ],
        unfenced=True,
    ),
    # Prompts are read again into blocks of requests that decode, and that no producer has begun.
    "shared-prefix-told-early": Scene(
        {
            **_READ,
            "workload.repeats": "1.0",
            "workload.requests": "4",
            "workload.interval_ms": "3",
            "workload.output_tokens": "[20, 40]",
        },
        [*_TELLS_ALL_EARLY, "small-pool:node=p0,phase=queued_at_p,nth=2,for_s=0.1"],
    ),
    # A producer's welcome comes when others of its requests are on both sides.
    "welcome-to-early-ones": Scene({**_RECOMPUTES, "workload.interval_ms": "3"}, _TELLS_ALL_EARLY),
    "welcome-to-early-ones-queued": Scene(
        {**_RECOMPUTES, "workload.interval_ms": "3"},
        [*_TELLS_ALL_EARLY, "small-pool:node=p0,phase=queued_at_p,nth=2,for_s=0.1"],
    ),
    "welcome-to-a-full-consumer": Scene(
        _RECOMPUTES,
        [
            "message-delayed:node=d0,by_ms=50",
            "small-pool:node=d0,phase=allocated,for_s=0.1",
        ],
    ),
    "welcome-to-one-that-recomputes": Scene(
        {
            **_RECOMPUTES,
            "seed": "1",
            "topology.producers": "2",
            "workload.repeats": "1.0",
            "workload.output_tokens": "[20, 40]",
        },
        [
            "early-hand-off:phase=queued_at_p,request=req-1",
            "slow-steps:node=p1,factor=5",
        ],
        request="req-1",
    ),
}

# What is aimed at in which scene. A hit changes what comes after it, so what would get into each
# other's way is aimed at one after the other.
Plays = Sequence[tuple[str, Sequence[Phase]]]
BY_THEMSELVES: tuple[Phase, ...] = ("prefill", "read_posted", "read_in_flight", "read_done")

TRANSFERS: Plays = (
    ("write", (*BY_THEMSELVES, "release")),
    ("write", ("read_in_flight",)),
    ("hybrid", ("read_posted",)),
    ("stale-write", ("allocated", "queued_at_d")),
    ("stale-write-before-handshake", ("handshake",)),
    ("stale-write-before-handshake", ("finished",)),
    ("stale-read", ("decode",)),
    ("stale-read-of-one-told-early", ("queued_at_p",)),
    ("stale-read-of-one-read", ("read_done",)),
)
COMPLETIONS: Plays = (
    *TRANSFERS,
    ("stale-write-before-handshake", ("read_in_flight",)),
    ("stale-read-of-one-posted", ("read_posted",)),
)
POSTS: Plays = (
    ("write", ("handshake",)),
    ("write", ("allocated", "read_posted", "read_in_flight", "read_done", "release")),
    ("write", ("allocated",)),
    ("write", ("read_posted", "read_in_flight")),
    ("write", ("read_in_flight",)),
    ("aborted-write", ("queued_at_d",)),
    ("stale-write-before-handshake", ("finished",)),
    ("shared-prefix-told-early", ("queued_at_p", "decode")),
)
SESSIONS: Plays = (
    ("first-contact", ("queued_at_p", "queued_at_d")),
    ("told-early", ("decode",)),
    ("new-sessions", ("read_posted",)),
    ("new-sessions", ("finished", "decode")),
    ("writing-ranks-in-flight", ("read_in_flight",)),
)
MESSAGES: Plays = (
    ("hybrid", ("allocated",)),
    ("renewals", ("read_posted",)),
    ("renewals", ("finished",)),
    ("renewals", ("decode",)),
    ("new-sessions", ("read_in_flight",)),
    ("write", ("queued_at_p",)),
    ("first-contact", ("prefill",)),
    ("first-contact-of-the-second", ("queued_at_d",)),
    ("given-up", ("handoff",)),
)
OWN_KEY: Plays = (
    ("hybrid", ("handshake",)),
    ("crowd", ("read_done", "release")),
    ("renewals", ("finished",)),
    ("new-sessions", ("read_in_flight",)),
    ("new-sessions", ("allocated",)),
    ("new-sessions", ("read_posted",)),
    ("welcome-to-early-ones", ("prefill",)),
    ("welcome-to-early-ones-queued", ("queued_at_p",)),
    ("welcome-to-a-full-consumer", ("queued_at_d",)),
    ("welcome-to-one-that-recomputes", ("decode",)),
)
BOTH_ENDS: Plays = (
    ("renewals", ("finished",)),
    ("renewals", ("decode", "read_done", "release")),
    ("write", ("queued_at_p",)),
    ("write", ("queued_at_p", "prefill", "handshake", "read_in_flight")),
    ("write", ("handshake",)),
    ("write", ("read_posted",)),
    ("write", ("read_in_flight",)),
    ("hybrid", ("read_in_flight",)),
)
SESSIONS_ARE_UP: Plays = (("write", ("handshake",)),)
CONSUMER: Plays = (
    ("renewals", ("finished",)),
    ("renewals", ("decode", "read_posted")),
    ("write", ("queued_at_p", "prefill", "handshake", "read_in_flight")),
    ("write", ("handshake",)),
    ("hybrid", ("read_in_flight",)),
)
PRODUCER: Plays = (
    ("hybrid", ("handoff",)),
    ("told-early", ("handshake",)),
    ("two-ranks", ("read_in_flight",)),
)
DEVICE_WRITES: Plays = (
    ("speculating-writes", ("prefill", "allocated", "queued_at_d")),
    ("speculating-writes", ("handshake",)),
    ("speculating-write-ends", ("finished",)),
    ("speculating-and-told-early", ("decode",)),
    ("writing-ranks", ("read_done",)),
    ("writing-ranks-posted", ("read_posted",)),
    ("writing-ranks-in-flight", ("read_in_flight",)),
)

_ITEM = "{kind}:during={phase},request={request}"
_MOMENT = "{kind}:phase={phase},request={request}"
Aimed = Sequence[tuple[str, Plays]]

ITEMS_IN_BRIEF: dict[str, Aimed] = {
    "completion-lost": ((_ITEM, COMPLETIONS),),
    "corrupt-bytes": ((_ITEM, TRANSFERS),),
    "late-device-writes": ((_ITEM, DEVICE_WRITES),),
    "malformed-message": (
        (_MOMENT + ",node=d0", (("write", ("queued_at_d",)), ("write", ("handshake",)))),
        (_MOMENT + ",node=p0", (*CONSUMER, *PRODUCER)),
    ),
    "message-dropped": ((_ITEM, MESSAGES),),
    "message-key-stripped": ((_ITEM, OWN_KEY),),
    "no-session": ((_ITEM, SESSIONS),),
    "partition": ((_MOMENT + ",node=p0,peer=d0,for_s=0.01", BOTH_ENDS),),
    "post-refused": ((_ITEM + ",posted=0", POSTS),),
    "queue-pair-error": (
        (_MOMENT + ",node=p0,peer=d0", BOTH_ENDS),
        ("{kind}:at_s=0.0027,node=p0,peer=d0", SESSIONS_ARE_UP),
    ),
    "region-invalid": (
        (_MOMENT + ",node=d0,for_s=0.001", CONSUMER),
        (_MOMENT + ",node=p0,for_s=0.001", PRODUCER),
    ),
}
MORE_ITEMS: dict[str, Aimed] = {
    "control-plane-silent": ((_ITEM, SESSIONS),),
    "message-delayed": ((_ITEM + ",by_ms=1", MESSAGES),),
    "message-duplicated": ((_ITEM, MESSAGES),),
    "never-answers": (
        (_ITEM + ",count=1,for_s=0.02", MESSAGES),
        (_ITEM + ",count=1", (("given-up", ("handoff",)),)),
    ),
    "completion-error": ((_ITEM, TRANSFERS),),
    "early-completion": ((_ITEM, TRANSFERS),),
    "late-landing": ((_ITEM + ",by_s=0.05", TRANSFERS),),
    "latency-spike": ((_ITEM, TRANSFERS),),
    "partial-landing": ((_ITEM, TRANSFERS),),
    "queue-pair-skew": ((_ITEM, TRANSFERS),),
    "send-queue-full": ((_ITEM, POSTS),),
    "silent-queue-pair": ((_ITEM, COMPLETIONS),),
}


def phases_hit(kind: str, aimed: Aimed, overlays: Path) -> set[str]:
    """All phases in which faults of ``kind`` reach a request in its scenes."""
    return {
        phase
        for aim, plays in aimed
        for scene, phases in plays
        for phase in SCENES[scene].hit(kind, aim, phases, overlays)
    }
