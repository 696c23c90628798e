"""Which test runs each of faultlab's commands in running text and in tables.

Where text only names a command (``faultlab report``), leaves out what it needs, or says what was
once measured, there is nothing to run.
"""

from __future__ import annotations

from collections.abc import Iterator

from doc_commands import BY_OTHERS, LONG, QUICK, Line, inline, lines, parse
from typer.exceptions import TyperException

RECORDS = ("campaigns.md", "mutants.md", "performance.md", "soak.md")
"""Pages that say by which commands their figures came about."""

_FAILED = "faultlab run late-hand-off"
_HYBRID = "faultlab run --connector hybrid --requests 4 --set length_scale=0.05 --out"
_SHARDS = [
    f"faultlab campaign --seeds 2 --connector reference --shard {n}/2 --out shard-{n}"
    for n in (1, 2)
]
_FAILING = (
    "faultlab campaign --seeds 11:12 --model llama --set workload.requests=3 "
    "--set extra_config.transfer_timeout=1 --set quiet_phase_s=2 --out night"
)
IN_TEXT: dict[str, tuple[int, list[str]]] = {
    "faultlab run --requests 60 --set length_scale=0.1": (0, []),
    "faultlab run --trace conversation.jsonl --requests 100": (0, []),
    "faultlab shrink faultlab-runs/...": (0, [_FAILED]),
    "faultlab shrink night": (0, [_FAILING]),
    "faultlab campaign --seeds 100": (1, []),
    "faultlab compare --seeds 100 --connector moriio --overlay ~/vllm": (0, []),
    "faultlab merge shard-1 shard-2": (0, _SHARDS),
    "faultlab schema": (0, []),
    "faultlab run my.yaml": (0, []),
    "faultlab replay faultlab-runs/...": (1, [_FAILED]),
    "faultlab diff runs/moriio runs/hybrid": (
        0,
        [f"{_FAILED} --out runs/moriio", f"{_FAILED} --connector hybrid --out runs/hybrid"],
    ),
    "faultlab issue faultlab-runs/...": (0, [_FAILED]),
    "faultlab report night": (
        0,
        ["faultlab campaign --seeds 2 --connector reference --out night"],
    ),
    "faultlab trace faultlab-runs/...": (0, [_FAILED]),
    "faultlab doctor": (0, []),
    "faultlab connectors": (0, []),
    "faultlab fabrics my.toml --against mi300x-cx7": (0, []),
    "faultlab run dense-data-parallel": (2, []),
    "faultlab run data-and-tensor-parallel": (2, []),
    "faultlab run --model glm-flash-nospec": (2, []),
    "faultlab run xgmi-waits": (0, []),
    "faultlab run rewritten-prefix": (0, []),
    "faultlab run busy-consumer": (0, []),
    "faultlab run --set length_scale=0.05 --fault completion-error:request=req-2": (1, []),
    (
        "faultlab run --model qwen-hybrid --set length_scale=0.05 "
        "--fault completion-error:request=req-2"
    ): (1, []),
    "faultlab run --set length_scale=0.05 --fault malformed-message": (1, []),
    (
        "faultlab run --set length_scale=0.05 --set extra_config.read_mode=false "
        "--fault message-dropped:port=61005"
    ): (0, []),
    **{
        f"faultlab run {name}": (1, [])
        for name in (
            "late-hand-off",
            "retried-hand-off",
            "retried-elsewhere",
            "abandoned-hand-off",
            "slow-read",
            "window-edge",
            "whole-blocks-twice",
            "state-copied-over-read",
            "drafts-over-read",
            "read-before-drafter",
            "drafter-row-of-another",
            "write-preempted",
            "write-abandoned-load",
            "write-first-contact",
            "write-retried",
            "write-failed",
            "example-in-chunks",
            "example-two-ranks",
            "example-missing-file",
        )
    },
}
"""Run by ``tests/soak/test_long_commands.py``: the exit code, and what has to be run before."""

_RAY = "tests/soak/test_ray_campaign.py"
TEXT_BY_OTHERS = {
    "faultlab campaign --seeds 100000 --executor ray --address HOST:6379 --out DIR": _RAY,
    "faultlab corpus": "tests/scenario/test_corpus.py",
    "faultlab mutants": "tests/soak/test_all_mutants.py",
}


def to_run() -> Iterator[Line]:
    """What a reader can copy from running text and run, and no table of blocks has."""
    of_blocks = {line.text for line in lines()} | {*QUICK, *LONG, *BY_OTHERS}
    for line in dict.fromkeys(inline()):
        is_whole = line.page == "README.md" or (
            line.page not in RECORDS and len(line.arguments) > 1 and _is_complete(line)
        )
        if line.program == "faultlab" and is_whole and line.text not in of_blocks:
            yield line


def _is_complete(line: Line) -> bool:
    """Whether it can be typed as it stands: with no word that stands for another."""
    words = line.arguments
    if any(word.rstrip("…").isupper() or word in ("...", ">") for word in words):
        return False
    try:
        parse(words)
    except TyperException:
        return False
    return True
