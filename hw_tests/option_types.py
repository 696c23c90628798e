"""Types of options for argparse: what cannot be is refused with what was expected instead.

Each raises ``argparse.ArgumentTypeError``, which ends the program with exit code 2.
"""

from __future__ import annotations

import math
import shlex
import tempfile
from argparse import ArgumentTypeError
from pathlib import Path

_LAST_PORT = 65535


def port(text: str) -> int:
    """One that others can be told."""
    number = _whole(text)
    if number is None or not 1 <= number <= _LAST_PORT:
        raise ArgumentTypeError(f"{text!r}; expected a port from 1 to {_LAST_PORT}")
    return number


def address(text: str) -> str:
    """HOST:PORT, as it was given."""
    host, _, after = text.rpartition(":")
    if not host:
        raise ArgumentTypeError(f"{text!r}; expected HOST:PORT, such as node2:6300")
    port(after)
    return text


def seconds(text: str) -> float:
    """Above 0, and not for ever."""
    return _above_0(text, "seconds above 0, such as 30")


def factor(text: str) -> float:
    """Above 0 and finite."""
    return _above_0(text, "a number above 0, such as 0.5")


def share(text: str) -> float:
    """From 0 to 1."""
    value = _finite(text)
    if value is None or not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r}; expected a share from 0 to 1, such as 0.1")
    return value


def count(text: str) -> int:
    """1 or more."""
    number = _whole(text)
    if not number:
        raise ArgumentTypeError(f"{text!r}; expected a whole number above 0")
    return number


def counts(text: str) -> list[int]:
    """Of 1 or more each, between commas."""
    return [count(part) for part in text.split(",")]


def natural(text: str) -> int:
    """0 or more."""
    number = _whole(text)
    if number is None:
        raise ArgumentTypeError(f"{text!r}; expected a whole number, 0 or more")
    return number


def url(text: str) -> str:
    """Without a slash at its end."""
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text!r}; expected a URL such as http://10.0.0.1:8000")
    return text.rstrip("/")


def command(text: str) -> str:
    """What a shell can take apart into words, of which there is one at least."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r}: {error}; expected a command in a shell's words, with "
                                "every quote closed") from None  # fmt: skip
    if not words:
        raise ArgumentTypeError(f"{text!r}; expected a command, such as 'ssh -p 2222'")
    return text


def name(text: str) -> str:
    """Not empty."""
    if not text.strip():
        raise ArgumentTypeError(f"{text!r}; expected a name")
    return text


def file(text: str) -> Path:
    """One that is there."""
    path = Path(text)
    if not path.is_file():
        raise ArgumentTypeError(f"{text!r}; expected a file that is there")
    return path


def folder(text: str) -> Path:
    """One that can be written to; it is made if it is not there."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ArgumentTypeError(
            f"{text!r}: {error.strerror}; expected a folder that can be made and written to"
        ) from None
    return path


def json_file(text: str) -> Path:
    """In a `folder`."""
    path = Path(text)
    if path.suffix != ".json":
        raise ArgumentTypeError(f"{text!r}; expected NAME.json")
    return folder(str(path.parent)) / path.name


def _above_0(text: str, expected: str) -> float:
    value = _finite(text)
    if value is None or value <= 0:
        raise ArgumentTypeError(f"{text!r}; expected {expected}")
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    """Digits only, as ``int`` takes more."""
    return int(text) if text.isascii() and text.isdecimal() else None
