"""Everything that callers of ``mori.io`` may rely on, as cases for any implementation of it.

Each case carries the section of the library's behaviour that it pins: 0 what is easily got
wrong, 1 the Python interface, 2 semantics. An arm (see ``arm``) runs them::

    for case in CASES:
        if case.needs <= arm.features:
            case.check(arm)

The same files run on the simulator, on the library without a GPU and on a machine with GPUs, so
they stay within Python 3.10 and import neither vLLM nor the simulator.
"""

from __future__ import annotations

from hw_tests.conformance import (
    api,
    chunking,
    details,
    environment,
    failures,
    nic,
    notifications,
    promises,
    transfers,
    transport,
    xgmi,
)
from hw_tests.conformance.arm import Case

CASES: list[Case] = [
    *api.case.all,
    *transfers.case.all,
    *failures.case.all,
    *notifications.case.all,
    *chunking.case.all,
    *xgmi.case.all,
    *environment.case.all,
    *transport.case.all,
    *promises.case.all,
    *details.case.all,
    *nic.case.all,
]
