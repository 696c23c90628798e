"""random, uuid, secrets and os: deterministic per seed, process and incarnation."""

from __future__ import annotations

import os
import random as real_random
import uuid as real_uuid
from itertools import pairwise
from typing import Any

import pytest
from facade_world import World, raised

from sim.errors import UnsupportedByFacade
from sim.guest.facades import chance
from sim.guest.facades.environ import ProcessEnvironment
from sim.guest.facades.files import SharedFiles
from sim.kernel import Process


class Modules:
    """The facades of one world."""

    def __init__(self, world: World) -> None:
        source = chance.Chance(world.kernel)
        self.random = chance.make_random(source)
        self.secrets = chance.make_secrets(source, self.random)
        self.uuid = chance.make_uuid(source)
        self.os = chance.make_os(
            source, SharedFiles(world.kernel), ProcessEnvironment(world.kernel)
        )


def _draw(m: Modules) -> list[Any]:
    items = list(range(10))
    m.random.shuffle(items)
    return [
        items, m.random.random(), m.random.randint(1, 10**9), m.random.choice("abcdef"),
        m.random.Random().random(), m.random.SystemRandom().randrange(10**9),
        m.secrets.token_hex(), m.secrets.randbelow(10**9), m.secrets.choice(range(10**9)),
        str(m.uuid.uuid4()), str(m.uuid.uuid1()), m.os.urandom(8), m.os.getpid(),
    ]  # fmt: skip


def _run(seed: int, *, incarnation: int = 0, name: str = "core") -> list[Any]:
    world = World(seed)
    world.process = Process(world.node, name, incarnation)
    return world.run(_draw, Modules(world))


def test_draws_follow_from_seed_process_and_incarnation() -> None:
    """Equal in all three gives equal draws; a change in any gives others."""
    first = _run(1)
    assert _run(1) == first
    for other in (_run(2), _run(1, incarnation=1), _run(1, name="worker")):
        assert not [a for a, b in zip(first, other, strict=True) if a == b and a not in "abcdef"]


def test_real_generators_are_left_alone() -> None:
    """The interpreter's own random module is neither seeded nor advanced."""
    real_random.seed(5)
    expected = real_random.Random(5).random()
    _run(1)
    assert real_random.random() == expected


def test_seeded_generators_are_the_real_ones() -> None:
    """A guest that seeds its generator gets the numbers it always gets."""
    world = World()
    m = Modules(world)

    def main() -> list[float]:
        m.random.seed(42)
        return [m.random.random(), m.random.Random(42).random()]

    assert world.run(main) == [real_random.Random(42).random()] * 2


def test_seeding_is_private_to_a_process() -> None:
    """random.seed() of one process does not touch the stream of another."""
    world = World()
    m = Modules(world)
    other = Process(world.node, "other")
    drawn: list[float] = []

    def reseed() -> float:
        m.random.seed(42)
        return float(m.random.random())

    with world.kernel.running():
        world.start(reseed)
        world.kernel.spawn(other, lambda: drawn.append(m.random.random()), name="main")
        world.kernel.run()
    assert drawn != [real_random.Random(42).random()]


def test_uuids_are_well_formed_and_distinct() -> None:
    """Versions 1 and 4 are what they say; the other kinds are the real ones."""
    world = World()
    m = Modules(world)

    def main() -> tuple[list[Any], list[Any]]:
        return [m.uuid.uuid1() for _ in range(50)], [m.uuid.uuid4() for _ in range(50)]

    ones, fours = world.run(main)
    assert {u.version for u in ones} == {1}
    assert {u.version for u in fours} == {4}
    assert {u.variant for u in ones + fours} == {real_uuid.RFC_4122}
    assert len({*ones, *fours}) == 100
    assert all(b.time > a.time for a, b in pairwise(ones))
    assert m.uuid.uuid5(m.uuid.NAMESPACE_DNS, "a") == real_uuid.uuid5(real_uuid.NAMESPACE_DNS, "a")
    assert m.uuid.UUID is real_uuid.UUID


def test_os_forwards_what_it_does_not_simulate() -> None:
    """Paths and constants are the real ones."""
    os_facade = Modules(World()).os
    assert os_facade.path.join("a", "b") == os.path.join("a", "b")
    assert {"getpid", "path", "sep", "environ"} <= set(dir(os_facade))
    assert raised(getattr, os_facade, "no_such_thing")[0] == "AttributeError"


def test_each_process_has_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It inherits the real one, less what would make a run depend on who starts it; what it sets
    neither another process nor the testbed sees, nor itself after a restart."""
    monkeypatch.setenv("SOME_SETTING", "inherited")
    monkeypatch.setenv("MORI_IO_CP_TIMEOUT_MS", "1")
    world = World()
    m = Modules(world)

    def body(value: str) -> Any:
        before = m.os.getenv("SOME_SETTING"), m.os.environ.get("MORI_IO_CP_TIMEOUT_MS")
        m.os.environ["SOME_SETTING"] = value
        return before, m.os.environ["SOME_SETTING"], m.os.environ.copy()["SOME_SETTING"]

    assert world.run(body, "a") == (("inherited", None), "a", "a")
    world.process.incarnation += 1
    assert world.run(body, "b") == (("inherited", None), "b", "b")
    world.process = Process(world.node, "another")
    assert world.run(body, "c") == (("inherited", None), "c", "c")
    assert os.environ["SOME_SETTING"] == "inherited"
    assert dict(m.os.environ) == {k: v for k, v in os.environ.items() if not k.startswith("MORI_")}


@pytest.mark.parametrize("name", ["fork", "kill", "_exit", "system", "getppid"])
def test_process_control_through_os_is_refused(name: str) -> None:
    """A guest can neither end nor fork the testbed."""
    world = World()
    with pytest.raises(UnsupportedByFacade, match=rf"os\.{name} .*facade_world"):
        world.run(lambda: raised(getattr(Modules(world).os, name)))


def test_number_of_cpus_is_that_of_no_machine() -> None:
    """Pool sizes do not depend on where a run is replayed."""
    assert Modules(World()).os.cpu_count() == 64
