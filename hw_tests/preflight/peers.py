"""Other machines: whether they are reached, and whether they run the same versions.

``serve`` answers one line of JSON to whoever connects; ``check_peer`` asks for it and compares.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial

from hw_tests.preflight.check import Check, NotMet
from hw_tests.preflight.host import Host, ProbeFailed
from hw_tests.preflight.software import rocm_version

_TIMEOUT_S = 5.0
_LONGEST_ANSWER = 1 << 16
_ASKED = {"mori": "version", "vllm": "version", "torch": "version", "connector": "sources"}
"""The key of each probe's answer that is compared."""


def versions(host: Host) -> dict[str, str | None]:
    """What has to be the same on all machines; None for what is not there."""
    try:
        rocm: str | None = rocm_version(host)
    except OSError:
        rocm = None
    return {"rocm": rocm, **{name: _answer(host, name, key) for name, key in _ASKED.items()}}


def _boot(host: Host) -> str | None:
    """The kernel's id of its start, by which a machine knows itself; None if it does not tell."""
    try:
        return host.read("proc/sys/kernel/random/boot_id")
    except OSError:
        return None


def _answer(host: Host, name: str, key: str) -> str | None:
    try:
        value = host.probe(name)[key]
    except ProbeFailed:
        return None
    return None if value is None else str(value)


def serve(host: Host, listener: socket.socket, more: Callable[[], bool] = lambda: True) -> None:
    """Tell everybody who connects the versions of ``host``, while there shall be ``more``."""
    answer = json.dumps({**versions(host), "boot": _boot(host)}).encode() + b"\n"
    while more():
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_TIMEOUT_S)
            try:
                connection.sendall(answer)
            except OSError:
                continue  # whoever asked is gone; others will ask


def check_peer(address: str) -> Check:
    """A check of one other machine; ``address`` is HOST:PORT."""
    return Check(
        f"peer {address}",
        "an answer, and the same versions of ROCm, mori, vLLM, torch and the connector",
        f"start there: faultlab doctor --hardware --serve {address.rpartition(':')[2]}; open the "
        "port; install the versions of this machine there, or those of that machine here",
        partial(_compare, address),
    )


def _compare(address: str, host: Host) -> str:
    name, _, port = address.rpartition(":")
    if not name or not port.isdecimal():
        raise NotMet(f"{address!r}, which is not HOST:PORT")
    try:
        theirs = _ask((name, int(port)))
    except (OSError, ValueError) as error:
        raise NotMet(f"no answer: {error}") from None
    boot = _boot(host)
    if boot is not None and theirs.get("boot") == boot:
        raise NotMet("this machine itself, which always agrees; name another one")
    ours = versions(host)
    missing = [key for key, value in ours.items() if value is None]
    if missing:
        raise NotMet(f"an answer, but this machine has no {', '.join(missing)} to compare")
    different = [
        f"{key} {theirs.get(key)} there and {value} here"
        for key, value in ours.items()
        if theirs.get(key) != value
    ]
    if different:
        raise NotMet("; ".join(different))
    return ", ".join(f"{key} {value}" for key, value in ours.items())


def _ask(address: tuple[str, int]) -> dict[str, str | None]:
    received = b""
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        while not received.endswith(b"\n"):
            part = connection.recv(4096)
            if not part or len(received) > _LONGEST_ANSWER:
                raise ValueError(f"{len(received)} bytes that are no line of versions")
            received += part
    answer = json.loads(received)
    if not isinstance(answer, dict):
        raise ValueError("no versions in it")
    return answer
