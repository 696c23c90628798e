"""Where the engines of the tests are, if whoever runs pytest has chosen hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hw_tests.process.launcher import AnyLauncher
from hw_tests.process.messages import Role


@dataclass(eq=False)
class HostPair:
    """A plugin of pytest by this name.

    Args:
        launchers: by the role of an engine.
        on_this_machine: whether all engines are reached through the loopback device.
    """

    NAME: ClassVar = "hw_tests-host-pair"

    launchers: Mapping[Role, AnyLauncher]
    on_this_machine: bool
