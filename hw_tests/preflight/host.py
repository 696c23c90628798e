"""The machine that is examined: its files below a root, and what its Python can import.

Everything that checks look at goes through here, so that they can be run on a recorded machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hw_tests.child import ChildFailed, run_to_end
from hw_tests.preflight.probes import PROBES

_LONGEST_PROBE_S = 300  # the first import of vLLM on a cold network file system takes minutes

Answer = Mapping[str, Any]


class ProbeFailed(Exception):
    """Something could not be imported or asked; the text is how it ended, and its last line."""


class Host:
    """One machine.

    Args:
        root: above sys, proc, dev, opt and boot.
        ask: answers one of ``PROBES`` by name; raises ProbeFailed.
        access: whether this process may read and write a device.
        environ: of this process.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        ask: Callable[[str], Answer] | None = None,
        access: Callable[[Path], bool] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._ask = ask_python if ask is None else ask
        self._access = read_and_write if access is None else access
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self._answers: dict[str, Answer | ProbeFailed] = {}

    def probe(self, name: str) -> Answer:
        """What Python says; asked once.

        Raises:
            ProbeFailed: with how it ended, and the last line of what it said.
        """
        if name not in self._answers:
            try:
                self._answers[name] = self._ask(name)
            except ProbeFailed as error:
                self._answers[name] = error
        answer = self._answers[name]
        if isinstance(answer, ProbeFailed):
            raise answer
        return answer

    def path(self, name: str) -> Path:
        return self._root / name

    def read(self, name: str) -> str:
        """Raises OSError."""
        return self.path(name).read_text().strip()

    def entries(self, name: str) -> list[Path]:
        """What is in a directory, sorted; nothing if there is none."""
        path = self.path(name)
        return sorted(path.iterdir()) if path.is_dir() else []

    def usable(self, path: Path) -> bool:
        """Whether a device is there and this process may read and write it."""
        return path.exists() and self._access(path)


def ask_python(name: str) -> Answer:
    """Run a probe in a process of its own: a library that ends its process ends only that."""
    try:
        said = run_to_end([sys.executable, "-c", PROBES[name]], _LONGEST_PROBE_S, os.environ)
    except ChildFailed as error:
        how, *lines = str(error).strip().splitlines()
        raise ProbeFailed(": ".join([how, *lines[-1:]])) from None
    answer: Answer = json.loads(said.strip().splitlines()[-1])
    return answer


def read_and_write(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)
