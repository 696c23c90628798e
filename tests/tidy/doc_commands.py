"""Finds the command lines of the documents, and says which test runs each of faultlab's.

A fenced ``console`` block after a line ``<!-- run -->`` (or ``<!-- run: exit N -->``) is executed
by ``tests/scenario/test_docs.py`` and its output compared; one after ``<!-- long -->`` by the soak
runs, where it has to end without a surprise. Lines elsewhere are in one of the tables below, or,
where they are not faultlab's, in those of ``doc_shell.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from source_tree import ROOT
from typer.main import get_command

from faults.cli import dispatch

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")),
    *(ROOT / name for name in ("reproducers/README.md", "sim/DIVERGENCE.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
RUN = re.compile(r"^<!-- (?P<how>run(?:: exit (?P<code>\d+))?|long) -->\n```console\n"
                 r"(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)  # fmt: skip
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n)+")
_SHELLS = ("sh", "bash", "console")
_COMMENT = re.compile(r"(?:^| +)# .*$")
_HERE = re.compile(r"<<'(?P<end>\w+)'$")
_SETTING = re.compile(r"\w+=")
_INLINE = re.compile(r"`((?:faultlab|make|pytest|python -m) [a-z][^`]*)`")

_LEASE = "PYTHONPATH=docs/examples faultlab run"
_TRACE = "mooncake_fast25_conversation_trace.jsonl"
_SETTINGS = """--extra-config '{"read_mode": "true", "http_port": 8000}'"""

QUICK = {
    "faultlab fabrics": 0,
    "faultlab run --connector hybrid --requests 20 --set length_scale=0.05": 0,
}
"""Run by ``tests/scenario/test_docs.py``, with their exit codes."""

LONG = {
    "faultlab run recall-2k": 0,
    "faultlab run --connector hybrid --set producer_connector=moriio": 0,
    "faultlab run --connector moriio --set producer_connector=hybrid": 0,
    'faultlab run --extra-config \'{"read_mode": "false"}\'': 0,
    "faultlab run --connector reference": 0,
    'faultlab run --connector package.module:Class --extra-config \'{"key": "value"}\'': 0,
    "faultlab run --connector example --set length_scale=0.05": 0,
    "faultlab run late-hand-off --overlay ~/vllm": 1,
    "faultlab fabrics mi300x-thor2": 0,
    "faultlab run --fabric mi300x-thor2": 0,
    "faultlab run --fabric my.toml": 0,
    "faultlab run --fabric calibration/fabric.toml": 0,
    "faultlab run --set accelerator=mi300x --model deepseek-mla": 0,
    "faultlab run --set accelerator=my-gpu.toml": 0,
    "faultlab run --fault early-hand-off:request=req-1,phase=prefill": 1,
    "faultlab run --fault disagreement:node=d0,dtype=float16": 1,
    (
        "faultlab run --model deepseek-mla --set speculation.method=mtp "
        "--set num_speculative_tokens=2"
    ): 0,
    "faultlab run late-hand-off --set 'router.holds=[]'": 0,
    "faultlab run my.yaml --set tp_size=2 --set executor=multi-process": 0,
    "faultlab run my.yaml --set extra_config.transfer_timeout=5": 0,
    "faultlab doctor --hardware": 2,
    f"{_LEASE} retried-hand-off --connector lease_connector:LeaseConnector {_SETTINGS}": 1,
    (
        f"{_LEASE} --connector lease_connector:LeaseConnector --requests 60 --perturb --seed 1 "
        f"--set length_scale=0.1 {_SETTINGS}"
    ): 0,
    (
        "faultlab run --set extra_config.read_mode=false --fault stop-token:request=req-1 "
        "--fault late-landing:request=req-1,by_s=0.5,count=null"
    ): 1,
    "faultlab campaign --seeds 20 --connector hybrid --fabric calibration/fabric.toml": 0,
    (
        f"faultlab run --model llama --trace {_TRACE} --requests 60 --set length_scale=0.1 "
        "--set topology.producers=16 --set topology.consumers=16 --json --out first-16p16d"
    ): 0,
    "faultlab bench": 0,
    "faultlab bench growth --full": 0,
    f"faultlab bench trace-100 --trace {_TRACE}": 0,
    "faultlab bench standard-fault-free kernel --json": 0,
    "faultlab bench compare": 0,
}
"""Run by ``tests/soak/test_long_commands.py``, with their exit codes."""

_HOWTOS = "tests/soak/test_long_commands.py::test_what_the_howtos_add_works"
_OF_A_RUN = "tests/soak/test_long_commands.py::test_a_command_of_running_text_ends_as_it_should"
_PEERS = "tests/soak/test_long_commands.py::test_a_machine_is_told_what_another_has"
BY_OTHERS = {
    "faultlab faults": "tests/scenario/test_howtos.py",
    "faultlab oracles": "tests/scenario/test_howtos.py",
    **{f"faultlab {name} faultlab-runs/...": _OF_A_RUN for name in ("replay", "shrink", "issue")},
    "faultlab models": "tests/unit/test_cli_lists.py",
    "faultlab run --requests 4 --set length_scale=0.05 "
    "--fault message-jitter:count=3,up_to_ms=5": _HOWTOS,
    "faultlab run --requests 4 --set length_scale=0.05 "
    "--fault throttled:node=d0,phase=decode,for_s=0.5": _HOWTOS,
    "faultlab run --model small-gqa --requests 4 --set length_scale=0.05": _HOWTOS,
    "faultlab run late-hand-off --set "
    "workload.requests='[{request_id: late, prompt: [[1, 64]], max_tokens: 2}]'": _HOWTOS,
    "faultlab doctor --hardware --serve 6300": _PEERS,
    "faultlab doctor --hardware --peer node2:6300": _PEERS,
}
"""What only another test can run, by that test."""


@dataclass(frozen=True)
class Line:
    """One command line as it is typed, without prompt, continuation and comment.

    ``script`` is what a shell would be given: all of that, and the input that follows the line.
    """

    page: str
    text: str
    is_marked: bool = False
    script: str = ""

    @property
    def program(self) -> str:
        """What runs, without its folder: ``python`` of ``SETTING=0 .venv/bin/python -m pytest``."""
        return Path(self._words[0]).name

    @property
    def arguments(self) -> list[str]:
        """What follows the program."""
        return self._words[1:]

    @property
    def _words(self) -> list[str]:
        return list(itertools.dropwhile(_SETTING.match, shlex.split(self.text)))


def lines() -> Iterator[Line]:
    """Every command line in a shell's block of a page, fenced or indented."""
    for page in PAGES:
        text = page.read_text()
        for found in RUN.finditer(text):
            for line, script in _commands(found["text"], prompt=True):
                yield Line(page.name, line, is_marked=True, script=script)
        rest = RUN.sub("", text)
        for block, prompt in _blocks(rest):
            for line, script in _commands(block, prompt=prompt):
                yield Line(page.name, line, script=script)


def commands_in(block: str, *, prompt: bool = False) -> list[str]:
    """The command lines of a block; with ``prompt`` those behind a ``$``, as others are output."""
    return [line for line, _ in _commands(block, prompt=prompt)]


def inline() -> Iterator[Line]:
    """Every command line in running text and tables."""
    for page in PAGES:
        for found in _INLINE.findall(_FENCE.sub("", page.read_text())):
            yield Line(page.name, " ".join(found.split()))


def parse(arguments: list[str]) -> None:
    """Give ``arguments`` to the real parser, and call nothing.

    Raises:
        TyperException: an unknown command or option, or a value that is not accepted.
    """
    group = get_command(dispatch.build(arguments))
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(group.make_context("faultlab", list(arguments)))
        rest = [*whole._protected_args, *whole.args]
        name, command, rest = group.resolve_command(whole, rest)
        command.make_context(name, rest, parent=whole)


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Blocks for a shell, each with whether its commands have a prompt. An indented one is for a
    shell: anything else is fenced, with its language or ``text``."""
    for found in _FENCE.finditer(text):
        if found["language"] in _SHELLS:
            yield found["text"], found["language"] == "console"
    for block in _INDENTED.findall(_FENCE.sub("", text)):
        yield textwrap.dedent(block), False


def _commands(block: str, *, prompt: bool) -> Iterator[tuple[str, str]]:
    """Each command as one line, and as a shell would be given it."""
    rest = iter(block.splitlines())
    for line in rest:
        if prompt and not line.startswith("$ "):
            continue
        script = _COMMENT.sub("", line.removeprefix("$ "))
        while _goes_on(script):
            script += "\n" + _COMMENT.sub("", next(rest))
        text = " ".join(script.replace("\\\n", " ").split())
        if here := _HERE.search(script):
            script = "\n".join(
                [script, *itertools.takewhile(here["end"].__ne__, rest), here["end"]]
            )
        if text:
            yield text, script


def _goes_on(script: str) -> bool:
    """Whether a line ends in the middle of a command: behind a backslash, or in quotes."""
    if script.endswith("\\"):
        return True
    try:
        shlex.split(script)
    except ValueError:
        return True
    return False
