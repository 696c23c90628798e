"""The library: what ``from faults import run, campaign`` gives.

Both functions work in any process, because runs happen in processes of their own, in the
environment that makes them reproducible. Those load vLLM once, which takes seconds, and stay for
later calls. Importing this module loads nothing heavy.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from faults.scenario_worker import Refusal, ScenarioWorker

if TYPE_CHECKING:
    from faults.campaign.pool import Pool
    from faults.campaign.ray_pool import RayPool
    from faults.campaign.result import SeedResult
    from faults.results import CampaignRun, Run
    from sim.scenario import Scenario

Where = Literal["local", "ray"]
_WORKER = ScenarioWorker()
atexit.register(_WORKER.end)


def load(name: str | Path) -> Scenario:
    """The scenario in the file ``name``, or the one that is shipped under that name.

    Raises:
        UsageError: there is no such file, or a key or value in it is not accepted.
    """
    from faults.cli.options import find_scenario  # noqa: PLC0415
    from sim.errors import UsageError  # noqa: PLC0415

    if not isinstance(name, str | Path):
        raise UsageError(
            f"{name!r:.60}: is of type {type(name).__name__}; expected a Scenario, a file, or the "
            "name of a shipped one"
        )
    return find_scenario(str(name))


def run(scenario: Scenario | str | Path, *, out: str | Path | None = None) -> Run:
    """Run ``scenario`` once, with its faults, and judge it.

    Args:
        scenario: the run as data, a file, or the name of a shipped one.
        out: where the artifact goes, whatever the verdict. Without it a failing run goes to a new
            directory in ``faultlab-runs``, and one that passes leaves nothing.

    Returns:
        The run, whether it passed or not: see ``Run.passed`` and ``Run.require_pass``. Equal
        scenarios on equal software give equal event hashes.

    Raises:
        UsageError: the scenario is not accepted, an engine refuses to start with it, or ``out``
            is in use.
        TestbedError: the testbed itself failed.
    """
    from sim.errors import TestbedError, UsageError  # noqa: PLC0415
    from sim.scenario import Scenario  # noqa: PLC0415

    known = scenario if isinstance(scenario, Scenario) else load(scenario)
    answer = _WORKER.run(known, None if out is None else Path(out))
    if isinstance(answer, Refusal):
        raise (UsageError if answer.usage else TestbedError)(answer.message)
    return answer


def campaign(
    seeds: int | range,
    *,
    connector: str = "moriio",
    beside: str | None = None,
    models: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    jobs: int | None = None,
    shard: tuple[int, int] = (1, 1),
    budget_s: float | None = None,
    seed_limit_s: float = 600.0,
    executor: Where = "local",
    address: str | None = None,
    known: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    on_result: Callable[[SeedResult], None] | None = None,
) -> CampaignRun:
    """Run many seeds, each with engines, a workload and faults of its own, in parallel.

    Before the seeds, the workers have to notice a connector that is known to be wrong.

    Args:
        seeds: the first so many, or a range.
        connector: a known one, or ``package.module:Class``.
        beside: another one that the same seeds are for: nothing is drawn that it cannot do, too.
        models: to draw from; all of them by default.
        settings: keys of every seed's scenario, with values as YAML, as ``--set`` takes them.
        jobs: worker processes; as many as there are processors, here or in the cluster, if None.
        shard: which part of how many, counted from 1.
        budget_s: start no run after so many seconds.
        seed_limit_s: a run that takes longer has hung.
        executor: ``local`` for processes here, ``ray`` for a Ray cluster that is there already.
        address: of the cluster, ``HOST:PORT``; the one that Ray finds if None.
        known: groups of failures that are excused; those that are vLLM's own always are.
        out: a directory for results and the first failing run of each group.
        resume: go on with the campaign in ``out``.
        on_result: called after each seed.

    Raises:
        UsageError: a name or setting is not accepted, ``out`` is in use, there is no cluster, or
            the sources under test have changed meanwhile; ``out`` has the results from before.
        TestbedError: the wrong connector was not noticed.
    """
    from faults.campaign.campaign import Campaign, begin  # noqa: PLC0415
    from faults.campaign.plan import plan_here  # noqa: PLC0415
    from faults.campaign.store import ResultsBySeed, Store  # noqa: PLC0415
    from faults.campaign.swarm import DEFAULT_MODELS, SwarmOptions  # noqa: PLC0415
    from faults.results import CampaignRun  # noqa: PLC0415
    from sim.errors import UsageError  # noqa: PLC0415

    if resume and out is None:
        raise UsageError("--resume: needs --out, the directory of the campaign to go on with")
    options = SwarmOptions(
        connector=connector,
        beside=beside,
        models=tuple(models or DEFAULT_MODELS),
        settings=dict(settings or {}),
    )
    plan = plan_here(options, range(seeds) if isinstance(seeds, int) else seeds, shard)
    with (
        _executor(executor, address, jobs, seed_limit_s) as workers,
        Store(None if out is None else Path(out), plan, resume=resume) as store,
    ):
        planned = Campaign(store, known)
        canary = begin(workers, planned)
        if not planned.interrupted:
            planned.run(workers, budget_s, on_result or (lambda result: None))
    summary = {**planned.document(), "canary": canary}
    return CampaignRun(results=ResultsBySeed(store), summary=summary)


def _executor(
    where: Where, address: str | None, jobs: int | None, seed_limit_s: float
) -> Pool | RayPool:
    from faults.campaign.pool import Pool  # noqa: PLC0415
    from faults.campaign.ray_pool import RayPool  # noqa: PLC0415
    from sim.errors import UsageError  # noqa: PLC0415

    if where == "ray":
        return RayPool(address, jobs, seed_limit_s)
    if address is not None:
        raise UsageError(f"--address {address}: add --executor ray, which it is for")
    return Pool(jobs or os.cpu_count() or 1, seed_limit_s)
