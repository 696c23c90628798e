"""A process in which one version's guarded work runs, a piece whenever it is asked for.

It is run as a file, with the directory of that version first on Python's path: so all versions are
measured by the same code, and nothing is asked of one but its ``guarded`` and ``peak_mib``.

A question is a line on stdin, ``seconds NAME`` or ``mib NAME``; its answer is a number in a line on
what was stdout, where the names come first, in a line; what libraries print goes to stderr.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Answer until there are no more questions."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nobody else's words may get among the answers, nor what importing prints
    from faults.bench.guard import guarded, peak_mib  # noqa: PLC0415
    from faults.bench.measure import cpu_clock  # noqa: PLC0415

    works = guarded()
    print(*works, file=answers)
    for line in sys.stdin:
        what, name = line.split()
        if what == "mib":
            print(peak_mib(works[name]), file=answers)
            continue
        begin_s = cpu_clock()
        works[name]()
        print(cpu_clock() - begin_s, file=answers)


if __name__ == "__main__":
    main()
