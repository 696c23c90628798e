"""Elements of SVG and HTML as strings in which everything from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from math import hypot

from markupsafe import Markup, escape

Value = str | float
_HEAD = 6.0  # pixels of an arrow's head


def tag(name: str, *children: str, **attributes: Value | None) -> Markup:
    """An element. ``class_`` and ``text_anchor`` are written ``class`` and ``text-anchor``; an
    attribute that is None is left out. A child that is no Markup is escaped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    content = Markup("").join(children)
    return Markup(f"<{name}{written}>{content}</{name}>")


def drawing(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    """A whole picture; the page scrolls it where there is little room."""
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label=label,
    )


def text(
    x: float, y: float, content: str, class_: str | None = None, anchor: str | None = None
) -> Markup:
    """A line of text; ``anchor`` is ``middle`` or ``end``, else it begins at ``x``."""
    return tag("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def line(
    x1: float, y1: float, x2: float, y2: float, class_: str, title: str | None = None
) -> Markup:
    """A straight line."""
    return tag("line", *_title(title), x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(
    x: float, y: float, width: float, height: float, class_: str, title: str | None = None
) -> Markup:
    """A rectangle."""
    return tag("rect", *_title(title), x=x, y=y, width=width, height=height, class_=class_)


def dot(x: float, y: float, class_: str, title: str | None = None) -> Markup:
    """A small circle."""
    return tag("circle", *_title(title), cx=x, cy=y, r=4, class_=class_)


def cross(x: float, y: float, class_: str) -> Markup:
    """Where something went wrong, or went no further."""
    path = f"M{x - 5:.0f} {y - 5:.0f}l10 10m0 -10l-10 10"
    return tag("path", d=path, class_=class_)


def arrow(
    x1: float, y1: float, x2: float, y2: float, class_: str, title: str | None = None
) -> Markup:
    """A line with a head at its end."""
    length = hypot(x2 - x1, y2 - y1) or 1.0
    ux, uy = (x2 - x1) / length * _HEAD, (y2 - y1) / length * _HEAD
    path = (
        f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        f"M{x2 - ux - uy / 2:.1f} {y2 - uy + ux / 2:.1f}L{x2:.1f} {y2:.1f}"
        f"L{x2 - ux + uy / 2:.1f} {y2 - uy - ux / 2:.1f}"
    )
    return tag("path", *_title(title), d=path, class_=class_)


def _title(title: str | None) -> list[Markup]:
    """What a browser shows of an element under the pointer."""
    return [] if title is None else [tag("title", title)]


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
