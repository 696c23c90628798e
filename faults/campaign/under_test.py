"""The sources under test: runs read them anew, so an edit would divide a campaign unnoticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from faults.campaign.swarm import SwarmOptions, scenario_of
from sim.engine.connectors import get_connector
from sim.errors import UsageError
from sim.guest.sources import GuestSources

_Stamp = tuple[int, int]
_NAMED = 5  # of the files that have changed


class SourcesUnderTest:
    """The Python files of the connectors and of the overlay that ``options`` name, as they are now.

    To look whether they have changed costs a look at their times and sizes.
    """

    def __init__(self, options: SwarmOptions) -> None:
        self._roots = list(_roots(options))
        self._digests = _digests(self._roots)
        self._stamps = _stamps(self._roots)

    def digest(self) -> str:
        """Of all of them, the same on every machine."""
        total = hashlib.blake2b(digest_size=8)
        for number, root in enumerate(self._roots):
            for path in sorted(path for path in self._digests if path.is_relative_to(root)):
                name = path.relative_to(root).as_posix()
                total.update(f"{number} {name}={self._digests[path]}\n".encode())
        return total.hexdigest()

    def require_unchanged(self) -> None:
        """UsageError, which names the files, if some are not what they were."""
        if all(_stamp(path) == stamp for path, stamp in self._stamps.items()):
            return
        stamps, digests = _stamps(self._roots), _digests(self._roots)
        changed = sorted(
            str(path)
            for path in {*digests, *self._digests}
            if digests.get(path) != self._digests.get(path)
        )
        if changed:
            more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
            raise UsageError(
                f"{', '.join(changed[:_NAMED])}{more}: changed while the campaign ran; the results "
                "so far are those of the sources before. Undo the change and go on with --resume, "
                "or start another campaign"
            )
        self._stamps = stamps


def _roots(options: SwarmOptions) -> Iterator[Path]:
    scenario = scenario_of(0, options)
    if scenario.overlay:
        yield Path(scenario.overlay)
    installed = GuestSources()
    for name in dict.fromkeys((scenario.connector, scenario.producer_connector)):
        for root in get_connector(name).roots if name else ():
            try:
                source = installed.find(root)
            except ModuleNotFoundError:  # it is in the overlay only
                continue
            path = Path(source.path)
            yield path.parent if source.is_package else path


def _digests(roots: list[Path]) -> dict[Path, str]:
    files = [path for path in _paths(roots) if path.is_file()]
    return {path: hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest() for path in files}


def _stamps(roots: list[Path]) -> dict[Path, _Stamp | None]:
    return {path: _stamp(path) for path in _paths(roots)}


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _paths(roots: list[Path]) -> Iterator[Path]:
    """The sources, and the directories, whose times tell of files that come and go."""
    for root in roots:
        yield root
        for path in sorted(root.rglob("*")):
            if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
                yield path
