"""Seeds as tasks of a Ray cluster that is there already.

Ray distributes them, and starts another process where one has died. At most as many are handed to
it as it can run at once, so however many seeds there are, few of them are in memory.

Processes and machines of a cluster are lost for reasons that no seed has to do with, so a seed that
was lost with one is handed out once more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from socket import create_connection
from typing import Any

import msgspec

from faults.campaign.executor import MakeJob, lost
from faults.campaign.plan import software
from faults.campaign.ray_worker import Files, run_remotely
from faults.campaign.result import SeedResult
from faults.campaign.worker import Job
from faults.cli.reexec import simulation_environment
from sim.errors import UsageError
from sim.stopwatch import wall_clock

_LOOKS_EVERY_S = 0.5
_CONNECTS_WITHIN_S = 10.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class _Given:
    """A job that Ray has, since when, and whether that is for the second time."""

    job: Job
    since_s: float
    again: bool


class RayPool:
    """Up to ``jobs`` tasks, or one for each processor of the cluster; each seed takes at most
    ``limit_s`` of wall time once it runs.

    Args:
        address: of the cluster; None for the one that Ray finds on this machine.
    """

    def __init__(self, address: str | None, jobs: int | None, limit_s: float) -> None:
        self._ray = _import_ray()
        self._address = address or "auto"
        self._jobs = jobs
        self._limit_s = limit_s
        self._at_work: dict[Any, _Given] = {}

    def __enter__(self) -> RayPool:
        """Connect.

        Raises:
            UsageError: there is no cluster at the address, or one that this process cannot join.
        """
        environment = {**simulation_environment({}), **_ONE_THREAD}
        try:
            _require_listener(self._address)
            self._ray.init(
                self._address,
                runtime_env={"env_vars": environment},
                logging_level="ERROR",
                log_to_driver=False,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"--address {self._address}: no Ray cluster can be joined there "
                f"({str(error).rstrip('.')}); start one with `ray start --head`, or give the "
                "address of its head as HOST:PORT"
            ) from error
        if self._jobs is None:
            self._jobs = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(run_remotely)
        self._software = self._ray.put(software())
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Disconnect; the cluster stays."""
        self._ray.shutdown()

    def run(self, seeds: Iterator[int], make_job: MakeJob) -> Generator[SeedResult, None, None]:
        """As an executor does.

        Raises:
            UsageError: a worker cannot run seeds as they are run here.
        """
        assert self._jobs is not None
        try:
            while True:
                for seed in islice(seeds, self._jobs - len(self._at_work)):
                    self._give(make_job(seed))
                if not self._at_work:
                    return
                done, _ = self._ray.wait(list(self._at_work), timeout=_LOOKS_EVERY_S)
                for task in done:
                    result = self._take(task)
                    if result is not None:
                        yield result
        finally:
            for task in self._at_work:
                self._ray.cancel(task, force=True)
            self._at_work.clear()

    def _give(self, job: Job, *, again: bool = False) -> None:
        task = self._task.remote(msgspec.json.encode(job), self._software, self._limit_s)
        self._at_work[task] = _Given(job, wall_clock(), again)

    def _take(self, task: Any) -> SeedResult | None:
        """The result of ``task``; None if it was lost for the first time, and is given anew."""
        given = self._at_work.pop(task)
        errors = self._ray.exceptions
        try:
            answer, files = self._ray.get(task)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            raise UsageError(
                f"a worker of the Ray cluster cannot run seeds: {_cause(error)}; install the same "
                "faultlab, vLLM and Python on every machine of the cluster"
            ) from error
        except errors.RayError as error:
            return self._lost(given, error)
        result = msgspec.json.decode(answer, type=SeedResult)
        return _brought_home(result, given.job, files) if files else result

    def _lost(self, given: _Given, error: Exception) -> SeedResult | None:
        how = f"the worker process was lost twice ({type(error).__name__})"
        if wall_clock() - given.since_s >= self._limit_s:
            how = f"the worker process died or did not finish it within {self._limit_s:g} s"
        elif not given.again:
            self._give(given.job, again=True)
            return None
        return lost(given.job.seed, how, given.since_s)


def _require_listener(address: str) -> None:
    """Ray itself would try for many minutes. OSError if nobody listens."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "://" not in address:
        create_connection((host.strip("[]"), int(port)), _CONNECTS_WITHIN_S).close()


def _brought_home(result: SeedResult, job: Job, files: Files) -> SeedResult:
    """With the artifact in the campaign's directory."""
    assert job.directory is not None
    assert result.artifact is not None
    directory = Path(job.directory) / Path(result.artifact).name
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return msgspec.structs.replace(result, artifact=str(directory))


def _cause(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1]}"


def _import_ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--executor ray needs Ray, which is not installed ({error}); run: "
            "pip install 'faultlab[ray]'"
        ) from error
