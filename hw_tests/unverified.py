"""What every output says that is about hardware on which this release was not tried."""

from __future__ import annotations

from typing import Final

NOTE: Final = (
    "unverified on hardware: nothing of this has been run on GPUs and a real NIC before this "
    "release, so a failure may be the test's own"
)
