"""The disk that all nodes share, and safetensors on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from facade_world import World, raised

from sim.errors import UnsupportedByFacade
from sim.guest.facades import chance
from sim.guest.facades.environ import ProcessEnvironment
from sim.guest.facades.files import MOUNT, SharedFiles, make_safetensors
from sim.units import MS


class Bench:
    """The facades of one world."""

    def __init__(self) -> None:
        self.world = World()
        files = SharedFiles(self.world.kernel)
        kernel = self.world.kernel
        self.os: Any = chance.make_os(chance.Chance(kernel), files, ProcessEnvironment(kernel))
        self.tensors: Any = make_safetensors(files)["safetensors"].torch


PATH = f"{MOUNT}/kv/a.safetensors"


def test_tensors_come_back_as_they_were_saved() -> None:
    """In the real format, whatever the type; it takes as long as 4 MB take."""
    bench = Bench()
    tensor = torch.arange(1 << 21, dtype=torch.int32).to(torch.bfloat16)

    def save_and_load() -> Any:
        bench.os.makedirs(f"{MOUNT}/kv", exist_ok=True)
        bench.tensors.save_file({"kv_cache": tensor}, PATH)
        return bench.world.kernel.now_ns, bench.tensors.load_file(PATH)

    saved_ns, loaded = bench.world.run(save_and_load)
    assert 2 * MS < saved_ns < 3 * MS
    assert torch.equal(loaded["kv_cache"], tensor)


def test_a_file_needs_its_directory_and_a_reader_its_file() -> None:
    """As on a disk; nothing of it is on the machine's."""
    bench = Bench()

    def program() -> list[Any]:
        missing = [
            raised(bench.tensors.save_file, {}, PATH)[0],
            raised(bench.tensors.load_file, PATH)[0],
        ]
        bench.os.makedirs(f"{MOUNT}/kv")
        again = raised(bench.os.makedirs, f"{MOUNT}/kv")[0]
        bench.tensors.save_file({}, PATH)
        return [*missing, again, bench.os.path.exists(PATH), bench.os.path.exists(MOUNT)]

    assert bench.world.run(program) == [
        "FileNotFoundError",
        "FileNotFoundError",
        "FileExistsError",
        True,
        True,
    ]
    assert not os.path.exists(MOUNT)


def test_other_paths_are_the_machines(tmp_path: Path) -> None:
    """Except for tensors, which would outlive the run there."""
    directory = str(tmp_path / "x")
    bench = Bench()

    def program() -> bool:
        bench.os.makedirs(directory)
        return bool(bench.os.path.exists(directory))

    assert bench.world.run(program)
    assert os.path.isdir(directory)
    assert bench.os.path.join("a", "b") == "a/b"
    another = Bench()
    with pytest.raises(UnsupportedByFacade, match="safetensors on"):
        another.world.run(another.tensors.save_file, {}, f"{directory}/a")
