"""A campaign, or a comparison, as JUnit XML, which CI systems show: one test case for each seed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from faults.campaign.result import SeedResult
from faults.plural import counted
from sim.errors import UsageError


def require_writable(path: Path | None) -> None:
    """UsageError, before hours are spent, when ``write_junit`` could not write there."""
    if path is None:
        return
    place = path if path.exists() else path.absolute().parent
    if path.is_dir() or not os.access(place, os.W_OK):
        raise UsageError(f"--junit {path}: cannot be written; name a file in a directory that can")


def write_junit(
    path: Path,
    results: Iterable[SeedResult],
    known: Sequence[str],
    not_run: int,
    command: str = "campaign",
    unserved: Mapping[int, str] = {},
) -> None:
    """Seeds that fall into known groups only are skipped, the others that fail are failures.

    A seed that was refused or failed closed is skipped, unless ``unserved`` has a group for it. One
    more case is skipped for all ``not_run`` seeds that have no result. The suite is called after
    the ``command`` that ran them.
    """
    suite = ElementTree.Element("testsuite", name=f"faultlab {command}")
    for result in sorted(results, key=lambda result: result.seed):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"faultlab.{command}",
            name=f"seed {result.seed}",
            time=f"{result.wall_s:.3f}",
        )
        _judge(case, result, known, unserved.get(result.seed))
    if not_run:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"faultlab.{command}", name="seeds without a result"
        )
        ElementTree.SubElement(case, "skipped", message=f"not run: {counted(not_run, 'seed')}")
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    try:
        ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"--junit {path}: cannot be written: {error.strerror}") from error


def _judge(
    case: ElementTree.Element, result: SeedResult, known: Sequence[str], unserved: str | None
) -> None:
    if result.status == "error":
        ElementTree.SubElement(case, "error", message=result.detail)
    elif result.status in ("refused", "failed-closed"):
        is_new = unserved is not None and unserved not in known
        message = f"{unserved or result.status}: {result.detail}"
        ElementTree.SubElement(case, "failure" if is_new else "skipped", message=message)
    elif result.failures:
        new = [failure for failure in result.failures if failure.group not in known]
        groups = ", ".join(failure.group for failure in new or result.failures)
        element = ElementTree.SubElement(case, "failure" if new else "skipped", message=groups)
        element.text = "\n".join(failure.detail for failure in result.failures)
