"""Reports with hashes of all that they rest on, so that a later change of any of it is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]


def seal(
    document: Document,
    out: Path,
    page: Callable[[Document, str], str],
    rests_on: Iterable[Path],
    sums: Path,
) -> str:
    """Write a report in JSON, its page beside it, and ``sums`` for ``sha256sum -c``.

    Args:
        document: for JSON; what is written has ``files``, hashes by path from ``out``'s folder.
        out: the JSON file.
        page: makes the page of the whole document and the JSON file's hash.
        rests_on: files that are there.
        sums: in the folder of ``out``.

    Returns:
        The hash of the JSON file.
    """
    files = _hashes(rests_on, out.parent)
    whole = {**document, "files": files}
    out.write_text(json.dumps(whole, indent=1, default=asdict) + "\n")
    html = out.with_suffix(".html")
    digest = _hash(out)
    html.write_text(page(whole, digest))
    files |= _hashes([out, html], out.parent)
    sums.write_text("".join(f"{value}  {name}\n" for name, value in files.items()))
    return digest


def discard(out: Path) -> None:
    """Remove the report of an earlier run, which whatever ends this one would leave behind.

    Raises:
        OSError: it cannot be removed.
    """
    for path in (out, out.with_suffix(".html"), sums_beside(out)):
        path.unlink(missing_ok=True)


def sums_beside(out: Path) -> Path:
    """Where the hashes of a report are that shares its folder with others."""
    return out.with_suffix(".sha256")


def _hashes(files: Iterable[Path], folder: Path) -> dict[str, str]:
    return {Path(os.path.relpath(path, folder)).as_posix(): _hash(path) for path in files}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
