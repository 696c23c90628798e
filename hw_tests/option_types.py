"""Types of options for argparse: what cannot be is refused with what was expected instead.

Each raises ``argparse.ArgumentTypeError``, which ends the program with exit code 2. Numbers have
bounds that no use comes near, and beyond which a program would hang or a library overflow.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import urlsplit

_LAST_PORT = 65535
_LONGEST_S = 1e7
_LARGEST_FACTOR = 1e6
_LARGEST_COUNT = 10_000_000
_LARGEST_NATURAL = 10**15
_LONGEST_NAME = 100


def parsed(parser: ArgumentParser, arguments: Sequence[str] | None) -> Namespace:
    """The options in ``arguments``, or in those of this process; words that are no text, which
    could neither be printed nor written into a report, are refused."""
    words = sys.argv[1:] if arguments is None else arguments
    for word in words:
        if not _is_text(word):
            parser.error(f"{word!r}: expected text that is UTF-8")
        if word.startswith("--") and word.endswith("=--"):  # of which argparse makes an empty list
            parser.error(f"{word!r}: expected a value after =")
    return parser.parse_args(words)


def _is_text(word: str) -> bool:
    try:
        return b"\0" not in word.encode()
    except UnicodeEncodeError:
        return False


def port(text: str) -> int:
    """One that others can be told."""
    number = _whole(text)
    if number is None or not 1 <= number <= _LAST_PORT:
        raise ArgumentTypeError(f"{text!r}; expected a port from 1 to {_LAST_PORT}")
    return number


def address(text: str) -> str:
    """HOST:PORT, as it was given."""
    before, _, after = text.rpartition(":")
    if not before:
        raise ArgumentTypeError(f"{text!r}; expected HOST:PORT, such as node2:6300")
    port(after)
    host(before.removeprefix("[").removesuffix("]"))
    return text


def host(text: str) -> str:
    """A name, or an address of either version, as it was given."""
    try:
        is_one = text.isprintable() and not set(text) & set(" /?#@") and bool(text)
        IPv6Address(text) if ":" in text else text.encode("idna")
    except ValueError:  # of which idna's is one: a name has an empty or a long part
        is_one = False
    if not is_one:
        raise ArgumentTypeError(f"{text!r}; expected a host's name or address, such as node2")
    return text


def seconds(text: str) -> float:
    """Above 0, and not for ever."""
    return _above_0(text, _LONGEST_S, f"seconds above 0, at most {_LONGEST_S:g}, such as 30")


def factor(text: str) -> float:
    """Above 0."""
    expected = f"a number above 0, at most {_LARGEST_FACTOR:g}, such as 0.5"
    return _above_0(text, _LARGEST_FACTOR, expected)


def share(text: str) -> float:
    """From 0 to 1."""
    value = _number(text)
    if value is None or not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r}; expected a share from 0 to 1, such as 0.1")
    return value


def count(text: str) -> int:
    """1 or more."""
    number = _whole(text)
    if not number or number > _LARGEST_COUNT:
        raise ArgumentTypeError(
            f"{text!r}; expected a whole number above 0, at most {_LARGEST_COUNT}"
        )
    return number


def counts(text: str) -> list[int]:
    """Of 1 or more each, between commas."""
    return [count(part) for part in text.split(",")]


def natural(text: str) -> int:
    """0 or more."""
    number = _whole(text)
    if number is None or number > _LARGEST_NATURAL:
        raise ArgumentTypeError(
            f"{text!r}; expected a whole number, 0 or more, at most {_LARGEST_NATURAL}"
        )
    return number


def url(text: str) -> str:
    """Without a slash at its end."""
    try:
        parts = urlsplit(text)
        host(parts.hostname or "")
        is_one = parts.scheme in ("http", "https") and parts.port != 0
        is_one &= text.isprintable() and not (parts.query or parts.fragment)
    except (ValueError, ArgumentTypeError):  # also of a port that cannot be
        is_one = False
    if not is_one:
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
    """Not empty, and in one line."""
    if not text.strip() or not text.isprintable() or len(text) > _LONGEST_NAME:
        raise ArgumentTypeError(
            f"{text!r}; expected a name of at most {_LONGEST_NAME} characters that can be printed"
        )
    return text


def file(text: str) -> Path:
    """One that is there."""
    path = Path(text)
    if not is_there(path) or not path.is_file():
        raise ArgumentTypeError(f"{text!r}; expected a file that is there")
    return path


def is_there(path: Path) -> bool:
    """Also of a path that is too long for any file system, or that may not be looked at."""
    try:
        return path.exists()
    except OSError:
        return False


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
    if path.suffix != ".json" or len(path.name.encode()) > _LONGEST_NAME:
        raise ArgumentTypeError(
            f"{text!r}; expected NAME.json of at most {_LONGEST_NAME} characters"
        )
    return folder(str(path.parent)) / path.name


def _above_0(text: str, most: float, expected: str) -> float:
    value = _number(text)
    if value is None or not 1 / _LONGEST_S <= value <= most:
        raise ArgumentTypeError(f"{text!r}; expected {expected}")
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    """Digits only, as ``int`` takes more, and no more of them than it does in no time."""
    is_one = text.isascii() and text.isdecimal() and len(text) <= 20
    return int(text) if is_one else None
