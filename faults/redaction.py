"""Takes out of a text what tells about somebody: addresses, names of hosts, paths, and prompts.

It rather takes out too much than too little: whatever looks like one of them goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

ADDRESS, PATH, PROMPT = "<address>", "<path>", "<prompt>"
_DOCUMENTED_ADDRESS = "192.0.2.1"  # RFC 5737: nobody has it
_ANY_PATH = "/shared"

_QUOTED = r"""\[[^\]\n]*(?:\]|$)|'(?:\\.|[^'\\\n])*(?:'|$)|"(?:\\.|[^"\\\n])*(?:"|$)"""
_PROMPTS = re.compile(
    rf"(\b\w*prompt\w*[\"']?\s*[=:]\s*)(?:{_QUOTED})", re.IGNORECASE | re.MULTILINE
)
_URL = re.compile(r"""\b[a-z][a-z0-9+.-]*://[^\s"'<>()|,;]+""", re.IGNORECASE)
_AUTHORITY = re.compile(r"""(?<=://)[^\s/:"']+(?::[^\s/@"']*@[^\s/:"']+)?""")
_LOGIN = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_HOST = re.compile(
    r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|io|ai|dev|cloud|internal|local|localdomain|"
    r"localhost|lan|intra|intranet|corp|home|cluster|svc|site)\b(?!\.?\w)",
    re.IGNORECASE,
)
_PORT = re.compile(
    r"(?<![\w:<>])[a-z][\w-]*(?:\.[\w-]+)*(?<!\.py)(?=:\d{4,5}(?![\w:]))", re.IGNORECASE
)
_NAMED_HOST = re.compile(r"(\bhost_?(?:name)?[\"']?\s*[=:]\s*[\"']?)[\w.-]+", re.IGNORECASE)
_COLONS = re.compile(r"(?<![\w:.])[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*(?:%\w+)?(?![\w:])", re.IGNORECASE)
_HARDWARE = re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE)
_DOTTED = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)")

_QUOTED_PATH = re.compile(r"""(["'])((?:~|\.{1,2})?[/\\]|~|[a-z]:\\)([^"'\n]*)\1""", re.IGNORECASE)
_WINDOWS = re.compile(r"""\b[a-z]:\\[^\s"'<>|]+""", re.IGNORECASE)
_POSIX = re.compile(
    r"(?<![\w.:/<])(?:(?:~[\w.-]*|\.{1,2})(?:/[\w.@+-]+)+|(?:/[\w.@+-]+)+/?|~\w[\w.-]*)"
)
_FILE = re.compile(r"[\w.@+-]+\.[a-z]\w{0,5}", re.IGNORECASE)


def redacted(text: str) -> str:
    """``text`` with a word in place of each; of the path of a file its own name is left."""
    text = _PROMPTS.sub(rf"\1{PROMPT}", text)
    text = _without_addresses(_URL.sub(ADDRESS, text), ADDRESS)
    text = _QUOTED_PATH.sub(lambda found: f"{found[1]}{_last(found[3])}{found[1]}", text)
    for pattern in (_WINDOWS, _POSIX):
        text = pattern.sub(lambda found: _last(found[0]), text)
    return text


def redacted_value(value: Any) -> Any:
    """A setting that still works: with an address and a path that every machine may have."""
    if isinstance(value, dict):
        return {key: redacted_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_value(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if "://" in value:
        return _AUTHORITY.sub(_DOCUMENTED_ADDRESS, value)
    if _POSIX.fullmatch(value) or _WINDOWS.fullmatch(value):
        return _ANY_PATH
    return _without_addresses(value, _DOCUMENTED_ADDRESS)


def _without_addresses(text: str, word: str) -> str:
    text = _COLONS.sub(_only_addresses(word), text)
    for pattern in (_LOGIN, _HOST, _PORT, _HARDWARE, _DOTTED):
        text = pattern.sub(word, text)
    return _NAMED_HOST.sub(rf"\g<1>{word}", text)


def _only_addresses(word: str) -> Callable[[re.Match[str]], str]:
    def replaced(found: re.Match[str]) -> str:
        candidate = found[0].rstrip(".:") if not found[0].endswith("::") else found[0]
        try:
            ip_address(candidate)
        except ValueError:
            return found[0]
        return word + found[0][len(candidate) :]

    return replaced


def _last(path: str) -> str:
    """The name of the file, if it is one; a directory may be called like a person."""
    name = re.split(r"[/\\]", path)[-1]
    return name if _FILE.fullmatch(name) else PATH
