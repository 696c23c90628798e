"""Known defects: groups that a campaign may fall into without failing, each until a date.

A file is a list of ``group``, ``owner``, ``link`` and ``expires``. An entry that has expired
excuses nothing any more.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import inspect

from sim.errors import UsageError
from sim.scenario.schema import explain, place_of
from sim.scenario.yaml_text import read_yaml, where_in_file

Text = Annotated[str, msgspec.Meta(min_length=1)]


class KnownDefect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group, who looks after it, where it is discussed, and the last day of its excuse."""

    group: Text
    owner: Text
    link: Text
    expires: str

    def __post_init__(self) -> None:
        """Refuse days that there are not."""
        try:
            datetime.date.fromisoformat(self.expires)
        except ValueError:
            raise ValueError(
                f"expires: is {self.expires!r}, expected a day such as '2027-01-31'"
            ) from None

    def excuses_on(self, day: datetime.date) -> bool:
        """Whether the excuse holds on ``day``."""
        return day <= datetime.date.fromisoformat(self.expires)


class _Document(msgspec.Struct, frozen=True):
    known: tuple[KnownDefect, ...]


def load_known(path: Path) -> list[KnownDefect]:
    """The entries of the file ``path``; UsageError when it is not such a file."""
    listed = read_yaml(path)
    document = {"known": [] if listed is None else listed}
    try:
        return list(msgspec.convert(document, _Document).known)
    except msgspec.ValidationError as error:
        told = explain(inspect.type_info(_Document), document, str(error))
        where = where_in_file(path)(place_of(str(error))[1:])  # the file is the list alone
        raise UsageError(f"{where}: {told}") from error
