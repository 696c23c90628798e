"""What the commands of the documents write is not taken for something to commit."""

from __future__ import annotations

from pathlib import PurePath

from doc_commands import lines
from source_tree import ROOT


def test_what_the_commands_of_the_documents_write_is_ignored_by_git() -> None:
    """Directories of ``--out`` that are typed in the directory of the sources. A virtual
    environment is ignored, too, where it is a link to one."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert ".venv" in ignored
    words = [line.arguments for line in lines() if line.program == "faultlab"]
    written = {PurePath(args[args.index("--out") + 1]) for args in words if "--out" in args}
    tops = {path.parts[0] for path in written if not path.is_absolute()}
    assert {"first", "smallest"} <= tops
    assert {top for top in tops if f"/{top}{'' if '.' in top else '/'}" not in ignored} == set()
