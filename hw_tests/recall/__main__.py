"""``python -m hw_tests.recall``: ask, and write a report."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hw_tests.load.verified import WANTED
from hw_tests.option_types import (
    count,
    counts,
    file,
    json_file,
    natural,
    parsed,
    seconds,
    share,
    url,
)
from hw_tests.outcome import EXIT_CODES
from hw_tests.recall.report import ARMS, Report
from hw_tests.recall.run import Plan, run
from hw_tests.recall.tables import NO_LOGS, counters_table, page, plain, recall_table
from hw_tests.registered import Evidence, compare
from hw_tests.sealed import discard, seal, sums_beside
from hw_tests.unverified import NOTE


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if no code was lost, no question failed and all that was counted is as it has to
    be, 1 if not, 3 if none could be lost, 2 if nothing could be asked."""
    parser = _parser()
    options = parsed(parser, arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    plan = Plan(
        url=options.url,
        control_url=options.control_url,
        words=options.words,
        needles=options.needles,
        seeds=tuple(seeds),
        max_tokens=options.max_tokens,
        timeout_s=options.timeout,
    )
    try:
        discard(options.out)
        report = asyncio.run(_run(plan, options, _keep_logs(options)))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, f"interrupted; {options.out} has the texts that were done, if any\n")
    print(plain(recall_table(report)), plain(counters_table(report)), sep="\n\n")
    registered = report.registered.said if report.registered else NO_LOGS
    print(f"\nregistered caches: {registered}")
    print(f"{report.verdict()}\n{NOTE}")
    out = options.out
    print(f"{out} and {_page_path(out)} have every answer, {sums_beside(out)} their hashes")
    return EXIT_CODES[report.outcome]


def _keep_logs(options: argparse.Namespace) -> Mapping[str, Path]:
    """Copies beside the report, as engines go on writing theirs. Raises ValueError if one side's
    log is missing, and OSError if there is none."""
    logs = {"prefill": options.prefill_log, "decode": options.decode_log}
    if not any(logs.values()):
        return {}
    if not all(logs.values()):
        raise ValueError("--prefill-log and --decode-log are compared; name both or none")
    kept = {name: options.out.with_suffix(f".{name}.log") for name in logs}
    for name, log in logs.items():
        shutil.copyfile(log, kept[name])
    return kept


def _evidence(logs: Mapping[str, Path]) -> Evidence | None:
    told = {name: log.read_text(errors="replace") for name, log in logs.items()}
    return compare(told) if told else None


async def _run(plan: Plan, options: argparse.Namespace, logs: Mapping[str, Path]) -> Report:
    """What there is of a report is written after each text, for whoever interrupts a long run."""
    evidence = _evidence(logs)
    async for report in run(plan):
        report.registered = evidence
        report.acceptance_gap = options.acceptance_gap
        report.has_drafts = not options.no_drafts
        report.is_verified = not options.unverified
        report.same_words = options.same_words
        _write(report, options.out, logs)
        print(_progress(report), flush=True)
    return report


def _write(report: Report, out: Path, logs: Mapping[str, Path]) -> None:
    def its_page(document: Mapping[str, Any], digest: str) -> str:
        return page(report, {out.name: digest, **document["files"]})

    seal(report.document(), out, its_page, logs.values(), sums_beside(out))


def _page_path(out: Path) -> Path:
    return out.with_suffix(".html")


def _progress(report: Report) -> str:
    last = report.answers[-1]
    pairs = [pair for pair in report.pairs() if pair[0].question[:2] == last.question[:2]]
    found = [sum(answer.found for answer in side) for side in zip(*pairs, strict=True)]
    shares = (f"{arm} found {n} of {len(pairs)}" for arm, n in zip(ARMS, found, strict=True))
    return f"{last.words} words, seed {last.seed}: {', '.join(shares)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m hw_tests.recall",
        allow_abbrev=False,  # of what hw_tests.cluster looks for
        description="Ask for codes hidden in long texts, through a router and of a control.",
    )
    add = parser.add_argument
    add("--url", type=url, required=True, help="the router, such as http://10.0.0.3:8080")
    add("--control-url", type=url, required=True, metavar="URL",
        help="a colocated server of the same model")  # fmt: skip
    add("--words", required=True, type=counts, help="lengths of texts, such as 2000,8000")
    add("--needles", type=count, default=Plan.needles, help="codes in a text (%(default)s)")
    add("--seeds", type=count, default=3, help="texts of each length (%(default)s)")
    add(
        "--first-seed",
        type=natural,
        default=0,
        metavar="SEED",
        help="another one makes texts that no cache has (%(default)s)",
    )
    add("--max-tokens", type=count, default=Plan.max_tokens, help="of an answer (%(default)s)")
    add(
        "--timeout",
        type=seconds,
        default=Plan.timeout_s,
        metavar="S",
        help="for one answer (%(default)s)",
    )
    for name in ("prefill", "decode"):
        add(f"--{name}-log", type=file, metavar="FILE", help=f"what the {name} engine has written")
    add(
        "--acceptance-gap",
        type=share,
        default=Report.acceptance_gap,
        metavar="SHARE",
        help="by which fewer drafts may be accepted behind the router (%(default)s)",
    )
    add("--no-drafts", action="store_true", help="the engines do not speculate")
    add(
        "--same-words",
        action="store_true",
        help="compare the arms' words and not the codes: for weights that know none",
    )
    add("--unverified", action="store_true", help=f"do not insist on {WANTED}, nor on /metrics")
    add("--out", type=json_file, required=True, metavar="JSON", help="the page goes beside it")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
