"""vLLM's own network helpers, as guests, get the facts of the simulated node."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from vllm.envs import disable_envs_cache

from sim.errors import UnsupportedByFacade
from sim.guest.facades import socket_facade
from sim.guest.facades.zmq import make as make_zmq
from sim.guest.imports import GuestImporter
from sim.guest.sources import GuestSources
from sim.kernel import Kernel, Node, Process, Seed
from sim.network import Network

UTILS = "vllm.utils.network_utils"


class World:
    """Two processes on two nodes, each with its copy of the helpers."""

    def __init__(self) -> None:
        importlib.import_module(UTILS)  # everything it needs, outside of virtual time
        self.kernel = Kernel(Seed(1))
        network = Network(self.kernel)
        self.socket = socket_facade.make(self.kernel, network)
        facades = {"socket": self.socket, **make_zmq(self.kernel, network)}
        self.importers: list[GuestImporter] = []
        self.processes = [Process(Node(f"n{i}", f"10.0.0.{i + 1}"), "core") for i in range(2)]
        self.utils: list[Any] = []
        for i in range(2):
            importer = GuestImporter(f"netutils{i}", [UTILS], facades, GuestSources())
            self.importers.append(importer)
            self.utils.append(importer.load(UTILS))

    def run(self, node: int, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What ``function`` returns in the process on ``node``."""
        results: list[Any] = []
        self.kernel.spawn(
            self.processes[node], lambda: results.append(function(*args, **kwargs)), name="t"
        )
        self.kernel.run()
        for failure in self.kernel.failures:
            raise failure.exception
        (result,) = results
        return result


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("VLLM_HOST_IP", "VLLM_PORT", "VLLM_LOOPBACK_IP"):
        monkeypatch.delenv(name, raising=False)
    world = World()
    with world.kernel.running():
        yield world
    for importer in world.importers:
        importer.close()


def test_address_is_that_of_the_node(world: World) -> None:
    """get_ip() differs between nodes of one interpreter."""
    assert [world.run(i, world.utils[i].get_ip) for i in range(2)] == ["10.0.0.1", "10.0.0.2"]
    assert world.run(0, world.utils[0].get_loopback_ip) == "127.0.0.1"


def test_open_ports_are_distinct_and_reproducible(world: World) -> None:
    """get_open_port() counts up on each node by itself."""
    ports = [world.run(0, world.utils[0].get_open_port) for _ in range(3)]
    assert len(set(ports)) == 3
    assert world.run(1, world.utils[1].get_open_port) == ports[0]


def test_open_port_search_skips_ports_in_use(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With VLLM_PORT, the first port that nobody listens on is found."""
    disable_envs_cache()  # an engine that ran in this process has frozen what vLLM sees
    utils = world.utils[0]
    monkeypatch.setenv("VLLM_PORT", "7000")

    def occupy_and_search() -> int:
        with utils.zmq_socket_ctx("tcp://*:7000", utils.zmq.ROUTER, bind=True) as _held:
            return utils.get_open_port()

    assert world.run(0, occupy_and_search) == 7001


def test_sockets_of_the_helpers_talk_across_nodes(world: World) -> None:
    """make_zmq_socket() and zmq_socket_ctx() work on the facade."""
    server, client = world.utils

    def serve() -> None:
        with server.zmq_socket_ctx("tcp://*:6301", server.zmq.ROUTER, bind=True) as router:
            identity, asked = router.recv_multipart()
            router.send_multipart([identity, asked.upper()])

    def ask() -> bytes:
        path = client.make_zmq_path("tcp", "10.0.0.1", 6301)
        context = client.zmq.Context.instance()
        dealer = client.make_zmq_socket(
            context, path, client.zmq.DEALER, bind=False, identity=b"d0"
        )
        dealer.send(b"meta")
        answer: bytes = dealer.recv()
        return answer

    world.kernel.spawn(world.processes[0], serve, name="server")
    assert world.run(1, ask) == b"META"


def test_host_names_are_node_names(world: World) -> None:
    """gethostname() is the node's name, and names resolve to nodes."""
    names = world.run(0, lambda: (world.socket.gethostname(), world.socket.gethostbyname("n0")))
    assert names == ("n0", "10.0.0.1")
    with pytest.raises(OSError, match="not known"):
        world.run(0, world.socket.gethostbyname, "elsewhere")


@pytest.mark.parametrize("use", ["create_connection", "listen"])
def test_carrying_data_is_refused(world: World, use: str) -> None:
    """Raw sockets are not simulated."""
    socket: Any = world.socket
    attempts = {
        "create_connection": lambda: socket.create_connection(("10.0.0.2", 1)),
        "listen": lambda: socket.socket().listen(),
    }
    with pytest.raises(UnsupportedByFacade, match=use):
        world.run(0, attempts[use])
