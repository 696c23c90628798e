"""``faultlab init``: a scenario to start from, with comments."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from faults.cli.outcome import JsonFlag, Outcome
from sim.errors import UsageError

TEMPLATE = Path(__file__).with_name("scenario_template.yaml")


def command(
    path: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="The file to write.", show_default=True)
    ] = Path("scenario.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json: JsonFlag = False,
) -> Outcome:
    """Write a scenario with comments, which runs as it stands.

    \b
    Examples:
      faultlab init
      faultlab init held.yaml
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a directory; name a file in it, such as {path / 'my.yaml'}")
    if path.exists() and not force:
        raise UsageError(f"{path}: exists; name another file, or add --force to overwrite it")
    try:
        path.write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    return Outcome({"written": str(path)}, partial(_render, path))


def _render(path: Path, console: Console) -> None:
    schema = path.with_name("scenario.schema.json")
    for text in (
        f"written to {path}; run it with: faultlab run {shlex.quote(str(path))}",
        f"for editors that check it: faultlab schema > {shlex.quote(str(schema))}",
    ):
        console.print(text, soft_wrap=True, markup=False, highlight=False)
