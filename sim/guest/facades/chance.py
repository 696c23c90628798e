"""``random``, ``uuid``, ``secrets`` and ``os``: chance drawn from the run's seed.

Each simulated process has one stream, named after its path and incarnation, for everything that
real processes draw from the operating system or from an unseeded generator.
"""

from __future__ import annotations

import hashlib
import os as real_os
import random as real_random
import uuid as real_uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from sim.guest.facades.clock import wall_ns
from sim.guest.facades.environ import ProcessEnvironment
from sim.guest.facades.files import SharedFiles, make_path
from sim.guest.facades.proxy import Facade, ModuleProxy, refusals
from sim.guest.facades.stdlib import run_copy
from sim.kernel import Kernel, Process

_FUNCTIONS = (
    "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss",
    "getrandbits", "getstate", "lognormvariate", "normalvariate", "paretovariate", "randbytes",
    "randint", "random", "randrange", "sample", "seed", "setstate", "shuffle", "triangular",
    "uniform", "vonmisesvariate", "weibullvariate",
)  # fmt: skip
_PROCESS_CONTROL = (
    "_exit", "abort", "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp",
    "execvpe", "fork", "forkpty", "getppid", "kill", "killpg", "popen", "posix_spawn",
    "posix_spawnp", "putenv", "spawnl", "spawnle", "spawnv", "spawnve", "system", "unsetenv",
)  # fmt: skip
_CPUS = 64
_PIDS = range(300, 4_194_304)  # Linux's default pid_max on 64 bits, less what boots first
_UUID_EPOCH_100NS = 0x01B21DD213814000  # 1582-10-15 to 1970-01-01


class Chance:
    """The streams of one run's processes."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._streams: dict[tuple[Process | None, str], real_random.Random] = {}

    def stream(self, purpose: str) -> real_random.Random:
        """The running process's generator for ``purpose``."""
        self.kernel.checkpoint()
        self.kernel.env.activity += 1
        task = self.kernel.current()
        process = task.process if task is not None else None
        key = (process, purpose)
        if key not in self._streams:
            self._streams[key] = self.fresh(process, purpose)
        return self._streams[key]

    def fresh(self, process: Process | None, purpose: str) -> real_random.Random:
        owner = f"{process.path}/{process.incarnation}" if process is not None else "no process"
        return self.kernel.seed.stream(f"guest/{purpose}/{owner}")

    def entropy(self, size: int) -> bytes:
        """What the operating system's random device gives."""
        return self.stream("urandom").randbytes(size)


def make_random(chance: Chance) -> ModuleType:
    """The facade of ``random``."""

    def dispatch(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(chance.stream("random"), name)(*args, **kwargs)

        return call

    members = {name: dispatch(name) for name in _FUNCTIONS if hasattr(real_random, name)}
    for cls in (Random, SystemRandom):
        members[cls.__name__] = type(cls.__name__, (cls,), {"_chance": chance})
    return Facade(chance.kernel, "random", members)


class Random(real_random.Random):
    """A generator that seeds itself from the run's seed when it is given none."""

    _chance: ClassVar[Chance]

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(self._chance.entropy(32) if a is None else a, version)


class SystemRandom(Random):
    """The process's random device as a generator; it has no state of its own."""

    def random(self) -> float:
        return self._chance.stream("urandom").random()

    def getrandbits(self, k: int, /) -> int:
        return self._chance.stream("urandom").getrandbits(k)

    def randbytes(self, n: int) -> bytes:
        return self._chance.entropy(n)

    def seed(self, *_args: Any, **_kwargs: Any) -> None:
        """Ignored, as by the real one."""

    def getstate(self) -> Any:
        raise NotImplementedError("System entropy source does not have state.")

    def setstate(self, state: Any) -> None:
        raise NotImplementedError("System entropy source does not have state.")


def make_secrets(chance: Chance, random: ModuleType) -> ModuleType:
    """The facade of ``secrets``: the library's own code on the facade of ``random``."""
    copy = run_copy("secrets", {"random": random})
    names = (*copy.__all__, "DEFAULT_ENTROPY")
    return Facade(chance.kernel, "secrets", {name: getattr(copy, name) for name in names})


def make_uuid(chance: Chance) -> ModuleType:
    """The facade of ``uuid``: versions 1 and 4 from clock and seed, all else real."""
    last_ticks: dict[Process | None, int] = {}

    def getnode() -> int:
        task = chance.kernel.current()
        name = task.process.node.name if task is not None else ""
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest(), "big")

    def uuid1(node: int | None = None, clock_seq: int | None = None) -> real_uuid.UUID:
        sequence = chance.stream("uuid").getrandbits(14) if clock_seq is None else clock_seq
        task = chance.kernel.current()
        process = task.process if task is not None else None
        ticks = wall_ns(chance.kernel) // 100 + _UUID_EPOCH_100NS
        ticks = last_ticks[process] = max(ticks, last_ticks.get(process, 0) + 1)
        time_low, time_mid, time_high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48
        fields = (
            time_low, time_mid, time_high & 0x0FFF, sequence >> 8 & 0x3F, sequence & 0xFF,
            getnode() if node is None else node,
        )  # fmt: skip
        return real_uuid.UUID(fields=fields, version=1)

    def uuid4() -> real_uuid.UUID:
        return real_uuid.UUID(bytes=chance.stream("uuid").randbytes(16), version=4)

    return ModuleProxy(real_uuid, {"getnode": getnode, "uuid1": uuid1, "uuid4": uuid4}, "uuid")


def make_os(chance: Chance, files: SharedFiles, environ: ProcessEnvironment) -> ModuleType:
    """The facade of ``os``: an environment for each process, and real files but for what all nodes
    share; process identity and chance are simulated."""
    pids: dict[Process | None, int] = {}

    def getpid() -> int:
        task = chance.kernel.current()
        process = task.process if task is not None else None
        if process not in pids:
            pids[process] = chance.fresh(process, "pid").choice(_PIDS)
        return pids[process]

    def register_at_fork(**_callbacks: Callable[[], Any]) -> None:
        """No simulated process forks."""

    overrides: dict[str, Any] = {
        "getpid": getpid,
        "urandom": chance.entropy,
        "getrandom": lambda size, flags=0: chance.entropy(size),
        "cpu_count": lambda: _CPUS,
        "register_at_fork": register_at_fork,
        "environ": environ,
        "getenv": environ.get,
        "makedirs": files.makedirs,
        "path": make_path(files),
    }
    overrides |= refusals(chance.kernel, "os", _PROCESS_CONTROL)
    return ModuleProxy(real_os, overrides, "os")
