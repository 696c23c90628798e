"""Campaigns on a Ray cluster of this machine, whose worker processes and nodes are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults.campaign import ray_pool
from faults.campaign.ray_pool import RayPool
from faults.campaign.result import SeedResult
from faults.campaign.swarm import SwarmOptions
from faults.campaign.worker import Job, run_job
from sim.errors import UsageError

pytestmark = pytest.mark.soak

SETTINGS = {"workload.requests": "3", "extra_config.transfer_timeout": "1"}
OPTIONS = SwarmOptions(models=("llama",), settings=SETTINGS, quiet_phase_s=2.0)
SEEDS = range(2, 8)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Its own environment is one in which runs would not be reproducible."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "17")
        patch.setenv("OMP_NUM_THREADS", "2")
        patch.setenv("VLLM_RPC_TIMEOUT", "1")
        made = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
        )
    yield made
    made.shutdown()


def arguments(out: Path, *more: str) -> list[str]:
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    shared = ["campaign", "--seeds", f"{SEEDS.start}:{SEEDS.stop}", "--model", "llama", *settings]
    return [sys.executable, "-m", "faults.cli", *shared, "--out", str(out), "--json", *more]


def results(directory: Path) -> dict[int, dict[str, Any]]:
    """What must not depend on where a seed ran, by seed."""
    lines = map(json.loads, (directory / "results.jsonl").read_text().splitlines())
    return {line.pop("seed"): without_place(line) for line in lines}


def without_place(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in ("wall_s", "artifact")}


def at_work(node: Any) -> list[int]:
    """Processes of ``node`` that run a seed now."""
    (raylet,) = node.all_processes["raylet"]
    found = []
    for process in Path("/proc").iterdir():
        try:
            if (process / "cmdline").read_bytes().startswith(b"ray::run_remotely"):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == raylet.process.pid:
                    found.append(int(process.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def test_a_campaign_on_ray_is_the_local_one(cluster: Any, tmp_path: Path) -> None:
    """Result by result, with the artifacts at home, although the cluster's environment differs; and
    what was interrupted goes on, whichever executor began it."""
    here, there = tmp_path / "here", tmp_path / "there"
    subprocess.run(arguments(here), check=False, capture_output=True)
    on_ray = ("--executor", "ray", "--address", cluster.address)
    with subprocess.Popen(
        arguments(there, *on_ray), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as campaign:
        while not (there / "results.jsonl").exists():
            assert campaign.poll() is None, campaign.communicate()
            time.sleep(0.1)
        campaign.send_signal(signal.SIGINT)
        output, _ = campaign.communicate(timeout=60)
    document = json.loads(output)
    assert document["interrupted"]
    assert document["runs"] == len(results(there)) > 0
    assert "wrong-bytes/consumer" in document["canary"]["groups"]
    again = subprocess.run(
        arguments(there, *on_ray, "--resume"), check=False, capture_output=True, timeout=300
    )
    document = json.loads(again.stdout)
    assert (document["runs"], document["not_run"], document["errors"]) == (len(SEEDS), 0, 0)
    assert results(there) == results(here)
    assert document["groups"]
    for group in document["groups"]:
        artifact = Path(group["artifact"])
        assert artifact.parent == there / "failures"
        assert (artifact / "events.jsonl").stat().st_size > 0


def found_by(cluster: Any, node: Any, lose: Callable[[], None]) -> dict[int, SeedResult]:
    """The results of a campaign during which ``lose`` is called, once ``node`` runs a seed."""
    found: dict[int, SeedResult] = {}
    lost = False
    with RayPool(cluster.address, None, 600.0) as pool:
        for result in pool.run(iter(SEEDS), lambda seed: Job(seed, OPTIONS)):
            found[result.seed] = result
            if not lost and at_work(node):
                lose()
                lost = True
    assert lost
    return found


def require_those_of_here(found: dict[int, SeedResult]) -> None:
    here = [run_job(Job(seed, OPTIONS)) for seed in SEEDS]
    assert [what(found[seed]) for seed in sorted(found)] == [what(result) for result in here]


def what(result: SeedResult) -> SeedResult:
    """All but the time that it took."""
    return msgspec.structs.replace(result, wall_s=0.0)


def test_a_worker_that_is_killed_costs_no_result(cluster: Any) -> None:
    """Ray starts another process, and the seed is handed out once more."""

    def kill() -> None:
        os.kill(at_work(cluster.head_node)[0], signal.SIGKILL)

    require_those_of_here(found_by(cluster, cluster.head_node, kill))


def test_a_node_that_is_lost_costs_no_result(cluster: Any) -> None:
    """With all that ran on it; the nodes that are left run its seeds."""
    node = cluster.add_node(num_cpus=1)
    found = found_by(cluster, node, lambda: cluster.remove_node(node, allow_graceful=False))
    assert not node.any_processes_alive()
    require_those_of_here(found)


def test_a_seed_that_takes_too_long_is_an_error(cluster: Any) -> None:
    """Nothing can be run in a hundredth of a second, and no seed is waited for."""
    with RayPool(cluster.address, 1, 0.01) as pool:
        results = list(pool.run(iter([0, 1]), lambda seed: Job(seed, OPTIONS)))
    assert [result.seed for result in results] == [0, 1]
    said = "the worker process died or did not finish it within 0.01 s"
    assert {result.detail for result in results} == {said}


def test_other_software_on_the_cluster_is_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results would be those of another campaign."""
    monkeypatch.setattr(ray_pool, "software", lambda: {"vllm": "0.1"})
    with (
        RayPool(cluster.address, 1, 60.0) as pool,
        pytest.raises(UsageError, match=r"UnfitWorker: .*vllm 0\.1, there .*on every machine"),
    ):
        list(pool.run(iter([0]), lambda seed: Job(seed, OPTIONS)))
