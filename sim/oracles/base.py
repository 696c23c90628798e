"""What an oracle is: a probe that knows one rule and says when it was broken.

An oracle looks at live objects and never changes them. It does not know what was injected, so
it can excuse nothing by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from sim.oracles.blocks import BlockHistory
from sim.oracles.findings import Findings
from sim.probes import Probe

if TYPE_CHECKING:
    from sim.kernel import Kernel

NORMAL_OUTCOMES = ("length", "stop")
"""Finish reasons of a request that ended as its client wanted."""


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an oracle that has nothing to set."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The end of a run, when everything has come to rest.

    ``engines`` are all engines (sim.engine.Engine), dead ones included.
    """

    engines: Sequence[Any]


@dataclass(frozen=True, eq=False)
class OracleContext:
    """What oracles share.

    ``expected_tokens(request_id, n)`` gives the first n tokens that follow the request's
    prompt when nothing goes wrong; ``requested_tokens(request_id)`` how many its client asked
    for. Both take logical ids. ``parameters`` is by oracle name.
    """

    kernel: Kernel
    findings: Findings
    blocks: BlockHistory
    expected_tokens: Callable[[str, int], Sequence[int]]
    requested_tokens: Callable[[str], int]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Oracle(Probe):
    """Base of all oracles; subclasses override handlers of Probe and, perhaps, ``finish``."""

    name: ClassVar[str]
    summary: ClassVar[str]
    Parameters: ClassVar[type[msgspec.Struct]] = NoParameters

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        self.context = context
        self.kernel = context.kernel
        self.parameters: Any = self.Parameters() if parameters is None else parameters

    def finish(self, run: RunFacts) -> None:
        """Judge what can only be judged at the end; called before the kernel is closed."""

    def counts(self) -> dict[str, int]:
        """What was seen and is no violation, for the summary of a run."""
        return {}

    def report(
        self,
        detail: str,
        *,
        node: str | None = None,
        request_id: str | None = None,
        **evidence: Any,
    ) -> None:
        """The rule is broken."""
        self.context.findings.report(
            self.name, detail, node=node, request_id=request_id, **evidence
        )
