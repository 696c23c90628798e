"""A report as tables, in plain text and in one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from hw_tests.identity import Identity
from hw_tests.recall.ask import Answer
from hw_tests.recall.counters import Counters
from hw_tests.recall.report import ARMS, Report
from hw_tests.registered import HEAD
from hw_tests.unverified import NOTE

_MARKS = {True: "ok", False: "FAIL", None: "??"}
Table = list[list[str]]
"""The first row is the head."""

NO_LOGS = "Not known, as --prefill-log and --decode-log do not name the engines' logs."

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #bbb; padding: .25em .6em; text-align: left; vertical-align: top }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
.verdict { font-weight: bold; padding: .5em; border-left: .4em solid #2a7 }
.verdict.bad { border-color: #c33 }
"""


def recall_table(report: Report) -> Table:
    """One row for each length and hit."""
    head = ["words", "local hit", "asked", *(f"{arm} found" for arm in ARMS), "same words"]
    table = [head + [f"{arm} failed" for arm in ARMS] + [f"{arm} s" for arm in ARMS]]
    for row in report.rows():
        counts = [row.words, row.hit, row.asked, *row.found.values(), row.same]
        cells = [*counts, *row.failed.values(), *row.seconds.values()]
        table.append(["" if cell is None else str(cell) for cell in cells])
    return table


def counters_table(report: Report) -> Table:
    """Drafts and loads of both arms side by side."""
    names = ["drafts", "draft_tokens", "accepted_tokens", "acceptance"]
    names += ["loads", "failed_loads", "verified_loads"]
    columns = [report.counters.get(arm, "not read") for arm in ARMS]
    return [["counted during the run", *ARMS], *(
        [name.replace("_", " "), *(_count(counters, name) for counters in columns)]
        for name in names
    )]  # fmt: skip


def _count(counters: Counters | str, name: str) -> str:
    if isinstance(counters, str):
        return counters
    value = getattr(counters, name)
    if name == "acceptance":
        return "no drafts" if value is None else f"{value:.1%}"
    return "not counted" if value is None else f"{value:.0f}"


def plain(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
    return "\n".join(lines)


def page(report: Report, files: Mapping[str, str]) -> str:
    """The whole report; ``files`` are hashes by name."""
    verdict = escape(report.verdict())
    settings = [["setting", "value"], *([k, str(v)] for k, v in report.settings.items())]
    checks = [[c.name, _MARKS[c.passed], c.seen] for c in report.checks()]
    parts = [
        f'<p class="verdict{"" if report.passed else " bad"}">{verdict}</p>',
        *(f"<p>Caveat: {escape(caveat)}.</p>" for caveat in report.caveats()),
        f"<p>{escape(NOTE)}</p>",
        _html(recall_table(report)),
        _html(counters_table(report)),
        _section("Engines", [["engine", *Identity._fields], *_engines(report)]),
        _section("Checks", [["check", "", "seen"], *checks]),
        _registered(report),
        _section("Codes lost behind the router", _lost_table(report)),
        _section("Questions that failed", _failed_table(report.failed())),
        f"<details><summary>Every answer</summary>{_html(_pairs_table(report))}</details>",
        _section("Settings", settings),
        _section("Files", [["file", "SHA-256"], *([name, value] for name, value in files.items())]),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Recall</title>'
        f"<style>{_STYLE}</style><h1>Recall after a hand-over</h1>{''.join(parts)}</html>\n"
    )


def _registered(report: Report) -> str:
    if report.registered is None:
        return f"<h2>Registered caches</h2><p>{escape(NO_LOGS)}</p>"
    said = f"<h2>Registered caches</h2><pre>{escape(report.registered.said)}</pre>"
    return said + _html([HEAD, *report.registered.rows()])


def _engines(report: Report) -> Table:
    return [[name, *(each or "not told" for each in engine)]
            for name, engine in report.engines.items()]  # fmt: skip


_PLACE = ["words", "seed", "needle", "depth", "local hit"]


def _place(answer: Answer) -> list[str]:
    depth = f"{answer.depth:.2f}"
    return [str(answer.words), str(answer.seed), answer.needle, depth, answer.hit]


def _lost_table(report: Report) -> Table:
    head = [*_PLACE, "code", *ARMS, "lost in this text", "why"]
    return [head, *(
        [*_place(r), r.code, r.text, c.text, str(lost.in_text), lost.why]
        for (r, c), lost in zip(report.lost(), report.attributed(), strict=True)
    )]  # fmt: skip


def _failed_table(failed: Sequence[Answer]) -> Table:
    return [["arm", *_PLACE, "why"], *([a.arm, *_place(a), a.error or ""] for a in failed)]


def _pairs_table(report: Report) -> Table:
    head = [*_PLACE, "code", "prompt tokens", *(f"{arm} cached" for arm in ARMS), *ARMS]
    return [head, *(
        [*_place(r), r.code, _number(r.prompt_tokens), _number(r.cached_tokens),
         _number(c.cached_tokens), r.error or r.text, c.error or c.text]
        for r, c in report.pairs()
    )]  # fmt: skip


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _section(title: str, table: Table) -> str:
    return f"<h2>{escape(title)}</h2>{_html(table)}" if len(table) > 1 else ""


def _html(table: Table) -> str:
    head, *rows = table
    cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f"<table><tr>{titles}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
