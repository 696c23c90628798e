"""A deliberate defect of the connector, and the overlay that brings it into a run.

The shipped files stay as they are: guests are loaded from an overlay directory that holds changed
copies of some modules (`sim.guest.sources`).
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import msgspec

from faults.campaign.overlay import with_overlay, write_overlay
from faults.campaign.swarm import SwarmOptions
from sim.errors import TestbedError

QUIET_PHASE_S = 70.0  # longer than a hold lasts that nobody releases
_SMALL = {"workload.requests": "4"}  # a run with a defect takes longer the more it breaks

QUEUED = {
    "engine.max_num_seqs": "1",
    "workload.interval_ms": "0",
    "workload.output_tokens": "[60, 90]",
}
"""Requests that wait on the consumer."""
READ_ONCE = {
    "extra_config.verify_reads": "all",
    "extra_config.transfer_timeout": "2",
    "kv_load_failure_policy": "fail",
}
"""Failed loads that are not read once more: to verify second reads takes two seconds by itself."""


class MutantOutdated(TestbedError):
    """The code that a mutant changes is no longer there."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Text of the shipped code, and what stands there instead.

    Args:
        module: of the connector.
        qualname: the function, method or constant in it that is changed.
        right: text that occurs in it exactly once.
        wrong: what stands there instead.
    """

    module: str
    qualname: str
    right: str
    wrong: str

    def made_in(self, text: str) -> str:
        """``text`` of the module, changed; MutantOutdated if there is not that one place."""
        node = _find(ast.parse(text), self.qualname.split("."))
        if node is None or node.end_lineno is None:
            raise MutantOutdated(f"{self.module} has no {self.qualname}")
        lines = text.splitlines(keepends=True)
        before, after = lines[: node.lineno - 1], lines[node.end_lineno :]
        body = "".join(lines[node.lineno - 1 : node.end_lineno])
        if body.count(self.right) != 1:
            raise MutantOutdated(
                f"{self.module}:{self.qualname} has {self.right!r} "
                f"{body.count(self.right)} times, expected once; adapt the mutant to the code"
            )
        return "".join([*before, body.replace(self.right, self.wrong), *after])


class Mutant(Change, frozen=True, kw_only=True):
    """One defect.

    Args:
        name: for the command line.
        breaks: what is wrong then, in a line.
        also: further changes: of checks that would hide this one.
        connector: that the modules belong to.
        models: that have what the defect concerns.
        settings: that the defect needs to show, as of ``--set``.
        apart_share: of its seeds in which engines disagree; for what refuses them.
        faults: kinds of which each of its seeds has one, besides what it draws; for what nothing
            else shows.
    """

    name: str
    breaks: str
    also: tuple[Change, ...] = ()
    connector: str = "hybrid"
    models: tuple[str, ...] = ("llama",)
    settings: dict[str, str] = {}
    apart_share: float = 0.0
    faults: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        """Make ``directory`` an overlay with this defect; MutantOutdated if it cannot be."""
        write_overlay(directory, self.files())

    def files(self) -> dict[str, str]:
        """The text of the overlay's files by their paths in it; MutantOutdated as ``mutated``."""
        return {f"{module.replace('.', '/')}.py": text for module, text in self.mutated().items()}

    def mutated(self) -> dict[str, str]:
        """The texts of the modules with the defect.

        Raises:
            MutantOutdated: a module, a name or a text in it is gone, or is there twice.
        """
        texts: dict[str, str] = {}
        for change in (self, *self.also):
            try:
                shipped = texts.get(change.module) or _text_of(change.module)
                texts[change.module] = change.made_in(shipped)
            except MutantOutdated as error:
                raise MutantOutdated(f"mutant {self.name}: {error}") from None
        return texts

    def options(self, overlay: Path | None, quiet_phase_s: float = QUIET_PHASE_S) -> SwarmOptions:
        """What its seeds have in common; without ``overlay`` for the connector as shipped.

        Reads are verified only where its settings say so: digests would hide other defects."""
        options = SwarmOptions(
            self.connector,
            self.models,
            {**_SMALL, **self.settings},
            quiet_phase_s,
            verified_share=0.0,
            apart_share=self.apart_share,
            sync_share=0.0,
            tuned_share=0.0,
            widest_share=0.0,
            always=self.faults,
        )
        return options if overlay is None else with_overlay(options, overlay)


def _text_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MutantOutdated(f"there is no module {module}")
    return Path(spec.origin).read_text(encoding="utf-8")


def _find(tree: ast.Module, names: list[str]) -> ast.stmt | None:
    """The statement that defines a dotted name."""
    statements: list[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for name in names:
        found = next((node for node in statements if name in _defined(node)), None)
        statements = found.body if isinstance(found, ast.ClassDef) else []
    return found


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return [target.id for target in targets if isinstance(target, ast.Name)]
