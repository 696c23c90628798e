"""Where servers of a run are looked for: a URL at which none could be, or at which none answers."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hw_tests.child import ChildFailed
from hw_tests.cluster.agent import Agent
from hw_tests.cluster.options import Options, parse
from hw_tests.cluster.remote import RemoteHost
from hw_tests.cluster.report import Report
from hw_tests.cluster.run import NotReady
from hw_tests.cluster.served import run_served
from hw_tests.process.launcher import free_port
from hw_tests.process.messages import Role

COMMANDS = ["--prefill", "p verify_reads=all", "--decode", "d verify_reads=all"]


class SilentHost:
    """A host on which servers start and never answer."""

    def __init__(self, name: str, logs: Path) -> None:
        self.name, self.logs = name, logs

    def serve(self, name: str, command: str, url: str) -> None:
        """Whatever it is."""

    def serves(self, name: str, url: str) -> bool:
        return False


@pytest.fixture
def options() -> Options:
    """Of a run that waits for no time."""
    hosts = ["--producer=node1=10.0.0.1", "--consumer=node2=10.0.0.2"]
    return parse(["--way=ssh", "--print", "--suite=recall", *hosts, *COMMANDS,
                  "--port=decode=9000", "--start-within=0.01"])  # fmt: skip


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("decode:8000", "decode: 'decode:8000'; expected a URL such as http://10.0.0.1:8000"),
        ("tcp://10.0.0.1:8000", "decode: 'tcp://10.0.0.1:8000'; expected a URL such as http://"),
        (
            "http://10.0.0.1:99999",
            "decode: 'http://10.0.0.1:99999'; expected a URL such as http://",
        ),
        ("http://", "decode: 'http://'; expected a URL such as http://10.0.0.1:8000"),
        (
            "http://node9:8000",
            "decode: 'http://node9:8000': Name or service not known; expected a host that is "
            "known where the server runs: name its address, such as http://10.0.0.1:8000",
        ),
    ],
)
def test_no_server_is_started_where_none_could_be(
    url: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by the URL and what one looks like, before anybody waits for it."""

    def unknown(*_: object, **_more: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    agent = Agent()
    with pytest.raises(ChildFailed, match=re.escape(told)):
        agent.serve("decode", "sleep 60", url)
    assert agent._serving == {}


@pytest.fixture
def garbage() -> Iterator[int]:
    """The port of what answers once, and not in HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-whatever\r\n")

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        yield listening.getsockname()[1]


def test_what_does_not_speak_http_does_not_serve(garbage: int) -> None:
    """Until the server that was started does, there or elsewhere."""
    agent = Agent()
    agent.serve("decode", "sleep 60", f"http://127.0.0.1:{free_port()}")
    try:
        assert agent.serves("decode", f"http://127.0.0.1:{garbage}") is False
    finally:
        agent._serving["decode"].kill()


def test_a_server_that_does_not_answer_is_told_with_its_url(
    options: Options, tmp_path: Path
) -> None:
    """And its log, and the options that name another place or more time."""
    hosts: dict[Role, Any] = {"kv_producer": SilentHost("node1", tmp_path / "1"),
                              "kv_consumer": SilentHost("node2", tmp_path / "2")}  # fmt: skip
    told = "prefill on node1 does not answer http://10.0.0.1:8000/health within 0.01 s; its log "
    told += f"is {tmp_path}/1/prefill.log: if it serves elsewhere, say --port NAME=PORT or "
    told += "HOST=ADDRESS; if it needs longer, --start-within"
    with pytest.raises(NotReady, match=re.escape(told)):
        run_served(options, cast("dict[Role, RemoteHost]", hosts), Report("sim", {}))
