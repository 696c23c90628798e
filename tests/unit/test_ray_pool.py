from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from faults.campaign.campaign import Campaign
from faults.campaign.plan import Plan
from faults.campaign.ray_pool import RayPool
from faults.campaign.result import SeedResult
from faults.campaign.store import Store
from faults.campaign.swarm import SwarmOptions
from faults.campaign.worker import Job
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from sim.errors import UsageError

OPTIONS = SwarmOptions(models=("llama",))


class RayError(Exception):
    """As Ray's."""


class RayTaskError(RayError):
    """As Ray's: the task raised an exception."""


class RuntimeEnvSetupError(RayError):
    """As Ray's."""


class FakeRay:
    """Runs one task each time it is asked what is ready: the newest, so that order is nobody's."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RuntimeEnvSetupError=RuntimeEnvSetupError
    )

    def __init__(self, answer: Callable[[Job], Any]) -> None:
        self.answer = answer
        self.handed_out = 0
        self.tries: Counter[int] = Counter()
        """Of seeds that have no result."""
        self.most_at_work = 0
        self._tasks: dict[int, Job] = {}
        self.cancelled: list[int] = []
        self.options: dict[str, Any] = {}
        self.environment: dict[str, str] = {}

    def init(self, address: str, *, runtime_env: Any, **options: Any) -> None:
        self.environment = runtime_env["env_vars"]

    def shutdown(self) -> None:
        """There is nothing to leave."""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **options: Any) -> Any:
        self.options = options
        return lambda function: SimpleNamespace(remote=self._submit)

    def _submit(self, job: bytes, software: Any, limit_s: float) -> int:
        self.handed_out += 1
        self._tasks[self.handed_out] = given = msgspec.json.decode(job, type=Job)
        self.tries[given.seed] += 1
        return self.handed_out

    def wait(self, tasks: list[int], timeout: float) -> tuple[list[int], list[int]]:
        self.most_at_work = max(self.most_at_work, len(tasks))
        return tasks[-1:], tasks[:-1]

    def get(self, task: int) -> Any:
        answer = self.answer(self._tasks.pop(task))
        if isinstance(answer, Exception):
            raise answer
        result, files = answer
        del self.tries[result.seed]
        return msgspec.json.encode(result), files

    def cancel(self, task: int, *, force: bool) -> None:
        self.cancelled.append(self._tasks.pop(task).seed)


def passed(job: Job) -> Any:
    return SeedResult(seed=job.seed, status="passed"), {}


@pytest.fixture
def pool_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RayPool]:
    def make(ray: FakeRay, limit_s: float = 60.0) -> RayPool:
        monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
        return RayPool(None, None, limit_s)

    return make


def job(seed: int) -> Job:
    return Job(seed, OPTIONS)


def test_a_cluster_has_no_more_seeds_than_it_can_run(pool_on: Callable[..., RayPool]) -> None:
    """As many as it has processors, and none is taken before there is room for it."""
    ray, taken = FakeRay(passed), []

    def seeds() -> Iterator[int]:
        for seed in range(20):
            taken.append(seed)
            yield seed

    with pool_on(ray) as pool:
        results = pool.run(seeds(), job)
        first = next(results).seed
        assert taken == [0, 1, 2]
        rest = [result.seed for result in results]
    assert sorted([first, *rest]) == list(range(20))
    assert ray.most_at_work == 3


def test_workers_get_what_runs_depend_on(pool_on: Callable[..., RayPool]) -> None:
    """A fixed hash seed and one thread; and Ray does not try a seed again behind our back."""
    ray = FakeRay(passed)
    with pool_on(ray):
        assert ray.environment["PYTHONHASHSEED"] == "0"
        assert ray.environment["OMP_NUM_THREADS"] == "1"
        assert ray.options == {"num_cpus": 1, "max_retries": 0}


def test_a_seed_that_was_lost_is_handed_out_once_more(pool_on: Callable[..., RayPool]) -> None:
    """A worker or a machine that is lost costs no result."""

    def answer(job: Job) -> Any:
        lost = job.seed in (1, 4) and ray.tries[job.seed] == 1
        return RayError("gone") if lost else passed(job)

    ray = FakeRay(answer)
    with pool_on(ray) as pool:
        results = sorted(pool.run(iter(range(6)), job), key=lambda result: result.seed)
    assert results == [SeedResult(seed=seed, status="passed") for seed in range(6)]
    assert ray.most_at_work == 3


def test_a_seed_that_is_lost_twice_is_an_error(pool_on: Callable[..., RayPool]) -> None:
    """It may well be its own doing; it says how, and the others have their results."""
    ray = FakeRay(lambda job: RayError("gone") if job.seed == 2 else passed(job))
    with pool_on(ray) as pool:
        results = {result.seed: result for result in pool.run(iter(range(6)), job)}
    assert sorted(results) == list(range(6))
    assert [seed for seed, result in results.items() if result.status == "error"] == [2]
    assert results[2].detail == "the worker process was lost twice (RayError)"
    assert ray.tries == {2: 2}


def test_a_seed_that_took_too_long_is_not_tried_again(pool_on: Callable[..., RayPool]) -> None:
    """It would take as long once more."""
    ray = FakeRay(lambda job: RayError("gone"))
    with pool_on(ray, 0.0) as pool:
        (result,) = pool.run(iter([0]), job)
    assert result.detail == "the worker process died or did not finish it within 0 s"
    assert ray.handed_out == 1


@pytest.mark.parametrize("seeds", [5_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_nothing_grows_with_the_seeds(
    pool_on: Callable[..., RayPool], tmp_path: Path, seeds: int
) -> None:
    """Of a whole campaign: results go to the disk as they come, and few seeds are at work."""
    ray, blocks = FakeRay(passed), dict[int, int]()

    def look(result: SeedResult) -> None:
        if result.seed in (seeds // 5, seeds - 10):
            gc.collect()
            blocks[result.seed] = sys.getallocatedblocks()

    plan = Plan(options=OPTIONS, first=0, end=seeds)
    with Store(tmp_path / "c", plan) as store, pool_on(ray) as pool:
        campaign = Campaign(store)
        campaign.run(pool, None, look)
        document = campaign.document()
    assert (document["runs"], document["passed"]) == (seeds, seeds)
    assert ray.most_at_work == 3
    early, late = blocks.values()
    assert late - early < 100, blocks


def test_leaving_ends_what_is_at_work(pool_on: Callable[..., RayPool]) -> None:
    """As Ctrl-C does."""
    ray = FakeRay(passed)
    with pool_on(ray) as pool:
        results = pool.run(iter(range(10)), job)
        done = next(results).seed
        results.close()
    assert sorted([done, *ray.cancelled]) == [0, 1, 2]


def test_a_worker_that_cannot_run_seeds_ends_the_campaign(
    pool_on: Callable[..., RayPool],
) -> None:
    """The message says what to do; other seeds would fare no better."""
    ray = FakeRay(lambda job: RayTaskError("traceback\nUnfitWorker: other software"))
    with (
        pool_on(ray) as pool,
        pytest.raises(UsageError, match=r"other software; install the same .* on every machine"),
    ):
        list(pool.run(iter([0]), job))


def test_artifacts_come_home(pool_on: Callable[..., RayPool], tmp_path: Path) -> None:
    """Into the campaign's directory, from wherever the worker has left them."""
    files = {"artifact.json": b"{}", "more/events.jsonl": b"[]"}
    result = SeedResult(seed=4, status="failed", artifact="/elsewhere/seed-4")
    ray = FakeRay(lambda job: (result, files))
    with pool_on(ray) as pool:
        (home,) = pool.run(iter([4]), lambda seed: Job(seed, OPTIONS, str(tmp_path)))
    assert home.artifact == str(tmp_path / "seed-4")
    for name, content in files.items():
        assert (tmp_path / "seed-4" / name).read_bytes() == content


def test_a_process_that_hangs_dies_in_time() -> None:
    """Also in a loop that no exception could end."""
    program = (
        "from faults.campaign.ray_worker import _dying_after\n"
        "with _dying_after(60.0): pass\n"
        "with _dying_after(0.05):\n"
        "    while True:\n"
        "        try:\n"
        "            while True: pass\n"
        "        except BaseException: pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == -signal.SIGALRM


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Ray itself, or an executor that an address is for; nothing is written before."""
    campaign = ["campaign", "--seeds", "3", "--out", str(tmp_path / "out")]
    assert dispatch.run([*campaign, "--address", "10.0.0.1:6379"]) == ExitCode.BAD_USAGE
    assert "add --executor ray" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert dispatch.run([*campaign, "--executor", "ray"]) == ExitCode.BAD_USAGE
    assert "pip install 'faultlab[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_address_where_nobody_listens_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray itself would go on trying for many minutes."""
    monkeypatch.setitem(sys.modules, "ray", FakeRay(passed))  # type: ignore[arg-type]
    with (
        pytest.raises(UsageError, match=r"--address 127\.0\.0\.1:1: no Ray cluster .*`ray start"),
        RayPool("127.0.0.1:1", None, 60.0),
    ):
        pass
