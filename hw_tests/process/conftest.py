"""Engines in processes, on what ``--arm`` names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hw_tests.conftest import cannot
from hw_tests.process.arms import PRELOADED, PROCESS_ARMS
from hw_tests.process.host_pair import HostPair
from hw_tests.process.launcher import Launcher
from hw_tests.process.pair import EngineProcess, Engines


@pytest.fixture(scope="package")
def all_engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    """Starts engines; none is left when the tests of this folder have run."""
    name = request.config.getoption("--arm")
    if name not in PROCESS_ARMS:
        cannot(request.config, f"{name} has the library alone, and these tests need vLLM beside it")
    arm = PROCESS_ARMS[name]
    pair: HostPair | None = request.config.pluginmanager.get_plugin(HostPair.NAME)
    if pair is not None:  # whoever has made it has looked at the hosts and closes them
        features = arm.features if pair.on_this_machine else arm.features - {"proxies"}
        yield Engines(pair.launchers, arm._replace(features=features))
        return
    if name != "sim":
        request.getfixturevalue("arm")  # tells what this machine lacks
    launcher = Launcher(PRELOADED, tmp_path_factory.mktemp("engines"))
    yield Engines({"kv_producer": launcher, "kv_consumer": launcher}, arm)
    launcher.close()


@pytest.fixture
def engines(all_engines: Engines) -> Iterator[Engines]:
    """What the test starts for itself ends with it."""
    yield all_engines
    all_engines.end_test()


@pytest.fixture
def load_mode() -> str:
    """Of ``consumer``; a test of `EACH_MODE` has it in both."""
    return "async"


@pytest.fixture
def consumer(engines: Engines, load_mode: str) -> Iterator[EngineProcess]:
    """A decode engine that other tests have used and will use, so it has to outlive every fault."""
    engine = engines.consumer(**({} if load_mode == "async" else {"load_mode": load_mode}))
    yield engine
    if engine.process.is_alive:
        engine.call("set_gate", is_open=True)


@pytest.fixture
def held_reads(engines: Engines, consumer: EngineProcess, request: pytest.FixtureRequest) -> None:
    """The consumer's reads stay under way until the gate is opened."""
    if "held-reads" not in engines.arm.features:
        cannot(request.config, "this arm cannot keep a read under way")
    consumer.call("set_gate", is_open=False)


@pytest.fixture
def proxies(engines: Engines, request: pytest.FixtureRequest) -> None:
    """A test may stand between engines."""
    if "proxies" not in engines.arm.features:
        cannot(request.config, "its proxy can stand between engines of its own machine only")
