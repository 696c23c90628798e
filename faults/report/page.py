"""Templates to pages. Whatever a template is given is escaped, unless it is Markup already."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from faults.plural import counted

_FOLDER = Path(__file__).parent


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["counted"] = counted
    return environment


def render(template: str, **content: Any) -> str:
    """The page that ``template`` makes of ``content``."""
    return _environment().get_template(template).render(**content)
