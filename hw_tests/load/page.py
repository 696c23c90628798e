"""A run as one HTML page that needs no other, and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from hw_tests.outcome import NOT_COMPARED
from hw_tests.registered import HEAD

_MARKS = {True: "ok", False: "FAIL", None: "??"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #bbb; padding: .25em .6em; text-align: left; vertical-align: top }
pre { white-space: pre-wrap; margin: 0 }
.red { color: #c33; font-weight: bold }
"""


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One for each check, and the verdict."""
    for phase in found["phases"]:
        yield phase["name"]
        for check in phase["checks"]:
            yield f"  {_MARKS[check['passed']]:4} {check['name']}: {check['seen']}"
    registered = found["registered"]
    good = "??  " if NOT_COMPARED in found["caveats"] else "ok  "
    yield f"{good if registered['passed'] else 'FAIL'} registered caches: {registered['said']}"
    yield verdict(found)
    yield found["note"]


def verdict(found: Mapping[str, Any]) -> str:
    """In one sentence."""
    if found["stopped"]:
        return f"stopped: {found['stopped']}"
    if found["outcome"] == "INCOMPLETE":
        return f"INCOMPLETE: {'; '.join(_unseen(found))}"
    return ", ".join(["pass", *found["caveats"]]) if found["outcome"] == "pass" else "FAIL"


def _unseen(found: Mapping[str, Any]) -> list[str]:
    return [f"{phase['name']}: {check['name']}: {check['seen']}"
            for phase in found["phases"] for check in phase["checks"]
            if check["passed"] is None]  # fmt: skip


def page(found: Mapping[str, Any], digest: str) -> str:
    """Checks, failures, counters and hashes; whatever a server said is text."""
    parts = [f"<h1>Load with disturbed engines: {escape(verdict(found))}</h1>"]
    parts += [f"<p>Caveat: {escape(caveat)}.</p>" for caveat in found["caveats"]]
    parts.append(f"<p>{escape(found['note'])}</p>")
    for phase in found["phases"]:
        parts.append(f"<h2>{escape(phase['name'])}</h2><table>")
        for check in phase["checks"]:
            mark = _MARKS[check["passed"]]
            mark = "ok" if mark == "ok" else f'<span class="red">{mark}</span>'
            cells = (escape(check["name"]), mark, escape(check["seen"]))
            parts.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        parts.append("</table>" + _failures(phase))
    parts.append("<h2>Engines</h2><table>")
    for name, engine in found["engines"].items():
        parts.append(f"<tr><td>{escape(name)}</td><td>{escape(str(engine))}</td></tr>")
    parts.append("</table><h2>Counted</h2><table>")
    for arm, counters in found["counters"].items():
        parts.append(f"<tr><td>{escape(arm)}</td><td>{escape(str(counters))}</td></tr>")
    parts.append("</table>" + caches_section(found["registered"]))
    parts.append("<h2>Told at the start</h2><table>")
    for name, said in found["boot"].items():
        told = escape("\n".join(said)) or "nothing about caches or registration"
        parts.append(f"<tr><td>{escape(name)}</td><td><pre>{told}</pre></td></tr>")
    parts.append("</table><h2>Files</h2><table>")
    for name, value in {"this report's JSON": digest, **found["files"]}.items():
        parts.append(f"<tr><td>{escape(name)}</td><td><code>{value}</code></td></tr>")
    head = f'<!doctype html><meta charset="utf-8"><title>load</title><style>{_STYLE}</style>'
    return head + "\n".join([*parts, "</table>\n"])


def caches_section(registered: Mapping[str, Any]) -> str:
    """What each engine has registered, and whether both have the same."""
    said = f"<pre>{escape(registered['said'])}</pre>"
    if not registered["passed"]:
        said = f'<span class="red">FAIL</span>{said}'
    head = "".join(f"<th>{escape(name)}</th>" for name in HEAD)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in registered["rows"]
    )
    return f"<h2>Registered caches</h2>{said}<table><tr>{head}</tr>{rows}</table>"


def _failures(phase: Mapping[str, Any]) -> str:
    failed = [reply for reply in phase["router"] if reply["error"] is not None]
    if not failed:
        return ""
    rows = (
        f"<tr><td>{escape(reply['name'])}</td><td>{reply['status']}</td>"
        f"<td>{reply['ended_s'] - reply['began_s']:.2f} s</td>"
        f"<td>{escape(reply['error'])}</td></tr>"
        for reply in failed
    )
    return "<p>Requests that failed:</p><table>" + "".join(rows) + "</table>"
