"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``; a noun that does not take an s has no place here."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
