"""Exceptions of what is no code under test: no guest on the stack may take them for its own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sim.errors import TaskCrashed
from sim.fabric import Fabric
from sim.kernel import Kernel, Node, Process, Seed
from sim.probes import Probe, Probes
from sim.verdict import Corrupt, Verdict, VerdictChain


def broken(*_args: Any) -> NoReturn:
    raise IndexError("planted")


class Bad(Probe):
    """Cannot bear to be told."""

    workload_began = broken


def judged(kernel: Kernel, judge: Callable[[Any], Verdict]) -> Any:
    """What the rule says, and what it makes of an item."""
    chain = VerdictChain(kernel.own)
    chain.add(SimpleNamespace(judge=judge))
    verdict: Any = chain.ask("item")
    return verdict.change(["frame"])


def told(kernel: Kernel) -> None:
    probes = Probes(kernel.own)
    probes.add(Bad())
    probes.workload_began()


def recorded(kernel: Kernel) -> None:
    kernel.log.subscribe(broken)
    kernel.record("anything")


def posted(kernel: Kernel) -> None:
    fabric: Any = Fabric(kernel)
    fabric.on_post(broken)
    fabric.posted(None, None)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda kernel: judged(kernel, broken), id="a rule"),
        pytest.param(lambda kernel: judged(kernel, lambda _: Corrupt(broken)), id="a change"),
        pytest.param(told, id="a probe"),
        pytest.param(recorded, id="an observer of the log"),
        pytest.param(posted, id="an observer of the fabric"),
    ],
)
def test_they_end_the_run_even_if_a_guest_swallows_them(act: Callable[[Kernel], object]) -> None:
    def guest() -> None:
        try:
            act(kernel)
        except BaseException:
            kernel.sleep(1)

    with Kernel(Seed(1)).running() as kernel:
        kernel.spawn(Process(Node("d0", "10.0.0.1"), "core"), guest, name="guest")
        with pytest.raises(TaskCrashed, match=r"IndexError\('planted'\) at .*test_own_code.py:"):
            kernel.run()
    assert kernel.failures == []
