"""Run one conformance case on the real library: its name and exit code 0, or a traceback and 1.

python -m hw_tests.arms.run_case ARM CASE
"""

from __future__ import annotations

import os
import sys
from typing import Any

from hw_tests.conformance import CASES


def make_arm(name: str) -> Any:  # without the methods of features that it does not have
    """An arm of the real library, in this process.

    Raises:
        SystemExit: this Python drops assertions, so that whatever is asked would be true.
    """
    if not __debug__:
        raise SystemExit("python -O or PYTHONOPTIMIZE: nothing would be asserted; unset it")
    if name == "mori-cpu":
        from hw_tests.arms.mori_cpu.arm import MoriCpuArm  # noqa: PLC0415  # needs its provider

        return MoriCpuArm()
    from hw_tests.arms.rocm.arm import RocmArm  # noqa: PLC0415  # needs GPUs

    return RocmArm()


def main(arm_name: str, case_name: str) -> None:
    """Run the case and tell that; leaves without tearing engines down, which is not the case."""
    (case,) = [case for case in CASES if case.name == case_name]
    case.check(make_arm(arm_name))
    print(f"\n{case.name}", flush=True)  # a line of its own, whatever the library has written
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
