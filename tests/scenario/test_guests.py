"""What a connector author brings along: a patched checkout, a class of their own, a proxy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import vllm

from sim.errors import UsageError
from sim.run import run
from sim.scenario import Scenario, UniformWorkload

MORIIO = "vllm/distributed/kv_transfer/kv_connector/v1/moriio"
SMALL = Scenario(
    workload=UniformWorkload(
        requests=2, prompt_tokens=(60, 90), output_tokens=(3, 3), interval_ms=50.0
    )
)


def overlay_with(tmp_path: Path, file: str, old: str, new: str) -> str:
    """A checkout that differs from the installed vLLM by one replacement in one file."""
    installed = Path(vllm.__file__).parent.parent / MORIIO / file
    text = installed.read_text()
    assert text.count(old) == 1
    patched = tmp_path / MORIIO / file
    patched.parent.mkdir(parents=True)
    patched.write_text(text.replace(old, new))
    return str(tmp_path)


def test_an_overlay_is_what_runs(tmp_path: Path) -> None:
    """A defect patched into a copy of the connector is found; the installed one is clean."""
    overlay = overlay_with(
        tmp_path, "moriio_connector.py",
        "            remote_block_ids=meta.remote_block_ids,\n            remote_host",
        "            remote_block_ids=[b[::-1] for b in meta.remote_block_ids],\n"
        "            remote_host",
    )  # fmt: skip
    broken = run(msgspec.structs.replace(SMALL, overlay=overlay))
    clean = run(SMALL)
    assert {v.oracle for v in broken.outcome.violations} >= {"wrong-bytes", "same-output"}
    assert clean.outcome.verdict == "pass"
    assert broken.guest_digest != clean.guest_digest


def test_any_class_is_named_without_an_edit() -> None:
    """package.module:Class with its settings is the same run as the name that stands for it."""
    scenario = msgspec.structs.replace(
        SMALL,
        connector=f"{MORIIO.replace('/', '.')}.moriio_connector:MoRIIOConnector",
        extra_config={"read_mode": "true", "http_port": 8000},
    )
    assert run(scenario).outcome.verdict == "pass"


def test_a_connector_that_does_not_exist_is_a_usage_error() -> None:
    """The message says which module or class is missing."""
    with pytest.raises(UsageError, match="no_such_package"):
        run(msgspec.structs.replace(SMALL, connector="no_such_package.mod:Cls"))


def test_settings_that_the_connector_refuses_are_a_usage_error() -> None:
    """Start-up failures of the connector end in its own words."""
    with pytest.raises(UsageError, match="transfer_timeout must be finite"):
        run(msgspec.structs.replace(SMALL, extra_config={"transfer_timeout": -1}))


def test_the_proxy_heartbeat_runs_as_a_side_program() -> None:
    """With proxy_ip upstream starts a child process that pings the proxy over ZMQ."""
    scenario = msgspec.structs.replace(
        SMALL, extra_config={"proxy_ip": "10.0.0.1", "proxy_ping_port": 36367}
    )
    result = run(scenario)
    assert result.outcome.verdict == "pass"
    started = [r for r in result.log.records if r.kind == "process-started"]
    assert [r.actor.split("/")[0] for r in started] == ["p0", "d0"]
