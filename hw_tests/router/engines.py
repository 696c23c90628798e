"""Which engines there are, and whose turn it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hw_tests.router.errors import RouterError

Kind = Literal["prefill", "decode"]

FORGOTTEN_AFTER_S = 15.0
"""Five of the intervals at which engines announce themselves."""


@dataclass
class Engines:
    """Engines of one kind, used in turn.

    Args:
        kind: as messages call it.
        given: base URLs of engines that are always there.
        clock: monotonic, in seconds.
    """

    kind: Kind
    given: Sequence[str] = ()
    clock: Callable[[], float] = time.monotonic
    _heard: dict[str, float] = field(default_factory=dict)
    _turn: int = 0

    def announce(self, url: str) -> bool:
        """An engine has said that it is there; whether that is news."""
        is_new = url not in self.urls()
        self._heard[url] = self.clock()
        return is_new

    def urls(self) -> list[str]:
        """Of engines that were given, and of those that were heard of lately."""
        now = self.clock()
        self._heard = {u: at for u, at in self._heard.items() if now - at < FORGOTTEN_AFTER_S}
        return list(dict.fromkeys([*self.given, *self._heard]))

    def next(self) -> str:
        """Raises RouterError if there is none."""
        urls = self.urls()
        if not urls:
            raise RouterError(
                503,
                f"there is no {self.kind} engine: name one by --{self.kind}, or let engines "
                f"announce themselves to --ping-port (proxy_ip and proxy_ping_port of their "
                f"connector); one that is silent for {FORGOTTEN_AFTER_S:.0f} s is forgotten",
            )
        url = urls[self._turn % len(urls)]
        self._turn += 1
        return url
