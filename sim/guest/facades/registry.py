"""All facades of a run, by the name of the module they stand in for."""

from __future__ import annotations

from types import ModuleType

from sim.fabric import Fabric, mori_io
from sim.guest.facades import (
    chance,
    checksums,
    clock,
    futures,
    processes,
    queues,
    threads,
    torch_facade,
)
from sim.guest.facades.environ import ProcessEnvironment
from sim.guest.facades.files import SharedFiles, make_safetensors
from sim.guest.facades.processes import Runner, SidePrograms
from sim.guest.facades.socket_facade import make as make_socket
from sim.guest.facades.zmq import make as make_zmq
from sim.kernel import Kernel
from sim.network import Network


def make_facades(
    kernel: Kernel, network: Network, fabric: Fabric, run_script: Runner
) -> dict[str, ModuleType]:
    """One set serves all processes: facades find out who calls from the running task."""
    time = clock.make(kernel)
    threading = threads.make(kernel)
    queue = queues.make(kernel, threading, time)
    randomness = chance.Chance(kernel)
    random = chance.make_random(randomness)
    files = SharedFiles(kernel)
    environ = ProcessEnvironment(kernel)
    os = chance.make_os(randomness, files, environ)
    library = mori_io.make(kernel, fabric, environ)
    mori = ModuleType("mori")
    vars(mori).update(io=library, cpp=mori_io.make_cpp(library))
    return {
        "time": time,
        "datetime": clock.make_datetime(kernel),
        "threading": threading,
        "queue": queue,
        "random": random,
        "secrets": chance.make_secrets(randomness, random),
        "uuid": chance.make_uuid(randomness),
        "os": os,
        "os.path": os.path,
        **make_safetensors(files),
        "socket": make_socket(kernel, network),
        **make_zmq(kernel, network),
        **futures.make(kernel, threading, queue, time),
        "zlib": checksums.make_zlib(kernel),
        **processes.make(SidePrograms(kernel, run_script)),
        **torch_facade.make(kernel),
        "mori": mori,
        "mori.io": library,
        "mori.cpp": mori.cpp,
    }
