"""The far side behind a real sshd on this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from far_hosts import PROGRAM, far_host, marked, until, until_none

from hw_tests.cluster.remote import HostLost
from hw_tests.process.launcher import free_port

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        SSHD is None or not shutil.which("ssh"),
        reason="no sshd or no ssh on this machine; Debian and Ubuntu: "
        "apt-get install openssh-server",
    ),
]


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The ssh command for an sshd that knows a key made for this test alone."""
    assert SSHD is not None
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(command, check=True)
    port = free_port()
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path}/host\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it gives up its rights
    command = [SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")]
    with (tmp_path / "sshd.log").open("wb") as log, subprocess.Popen(command, stderr=log) as daemon:
        said = tmp_path / "sshd.log"
        until(lambda: "listening" in said.read_text() or daemon.poll() is not None, said.read_text)
        known = ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={tmp_path}/known"]
        key = ["-i", f"{tmp_path}/user", "-o", "IdentitiesOnly=yes", "-F", "none"]
        yield ("ssh", "-p", str(port), "-l", getpass.getuser(), *key, *known)
        daemon.terminate()


def test_a_host_behind_ssh_works_and_ends_with_its_connection(
    ssh: tuple[str, ...], tmp_path: Path
) -> None:
    """Closed, and killed in the middle."""
    mark = f"test-{os.getpid()}-{tmp_path.name}"
    for number, is_killed in enumerate([False, True]):
        host = far_host("ssh", tmp_path / f"logs{number}", mark, ssh=ssh)
        engine = host.start("engine", PROGRAM, None)
        assert engine.call("echo") == "echo"
        assert engine.pid in marked(mark)
        if is_killed:
            os.killpg(host.pid, signal.SIGKILL)
            until_none(mark)
            with pytest.raises(HostLost):
                engine.call("echo")
        host.close()
        until_none(mark)
