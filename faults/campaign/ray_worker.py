"""What a worker process of a Ray cluster does with a job.

Ray loads this module before anything else of ours, so nothing here may import vLLM, which reads
its environment then.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory

from faults.cli.reexec import adopt_environment

Files = dict[str, bytes]


class UnfitWorker(Exception):
    """What this process would say about a seed might not be what others say."""


def run_remotely(job: bytes, software: Mapping[str, str], limit_s: float) -> tuple[bytes, Files]:
    """Run one job.

    Args:
        job: a Job as JSON.
        software: versions of the campaign.
        limit_s: real seconds after which this process dies.

    Returns:
        The result as JSON, and the files of its artifact, if there is one, by name: the directory
        of the campaign may be on another machine.

    Raises:
        UnfitWorker: the hash seed is random, or other software is installed here.
    """
    with _dying_after(limit_s):
        _settle(software)
        return _run(job)


@contextmanager
def _dying_after(seconds: float) -> Iterator[None]:
    """The signal's own action ends the process, whatever hangs in it."""
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _settle(software: Mapping[str, str]) -> None:
    if sys.flags.hash_randomization:
        raise UnfitWorker(f"{gethostname()}: Python was started without PYTHONHASHSEED=0")
    if "vllm" not in sys.modules:
        adopt_environment()
    from faults.campaign import plan  # noqa: PLC0415  # the environment is settled first

    here = plan.software()
    differing = [
        f"{name} {software.get(name, 'none')}, there {here.get(name, 'none')}"
        for name in sorted({*software, *here})
        if software.get(name) != here.get(name)
    ]
    if differing:
        raise UnfitWorker(f"{gethostname()} has other software; here {'; '.join(differing)}")


def _run(encoded: bytes) -> tuple[bytes, Files]:
    import msgspec  # noqa: PLC0415

    from faults.campaign.worker import Job, run_job  # noqa: PLC0415

    job = msgspec.json.decode(encoded, type=Job)
    if job.directory is None:
        return msgspec.json.encode(run_job(job)), {}
    with TemporaryDirectory(prefix="faultlab-artifact-") as directory:
        result = run_job(msgspec.structs.replace(job, directory=directory))
        files = {} if result.artifact is None else _files(Path(result.artifact))
        return msgspec.json.encode(result), files


def _files(directory: Path) -> Files:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
