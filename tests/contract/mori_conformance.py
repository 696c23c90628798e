"""Everything that callers of ``mori.io`` may rely on, as cases for any implementation of it.

Each case carries the section of the library's behaviour that it pins: 0 what is easily got
wrong, 1 the Python interface, 2 semantics. An arm (see ``mori_arm``) runs them::

    for case in CASES:
        if case.needs <= arm.features:
            case.check(arm)

The same files run on the simulator and on a machine with the library.
"""

from __future__ import annotations

import mori_conformance_api
import mori_conformance_chunking
import mori_conformance_failures
import mori_conformance_notifications
import mori_conformance_transfers
import mori_conformance_xgmi
from mori_arm import Case

CASES: list[Case] = [
    *mori_conformance_api.case.all,
    *mori_conformance_transfers.case.all,
    *mori_conformance_failures.case.all,
    *mori_conformance_notifications.case.all,
    *mori_conformance_chunking.case.all,
    *mori_conformance_xgmi.case.all,
]
