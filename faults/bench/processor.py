"""Which processor this is, as far as Linux tells."""

from __future__ import annotations

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def name() -> str:
    """As its maker calls it, for people; the same name may stand for several kinds."""
    return _first().get("model name") or platform.machine()


def kind() -> str:
    """Vendor, family and model, which tell kinds apart that virtual machines call the same; the
    architecture where there are none."""
    found = [_first().get(field) for field in ("vendor_id", "cpu family", "model")]
    if None in found:
        return platform.machine()
    return "{} family {} model {}".format(*found)


def _first() -> dict[str, str]:
    """What is known of the first core; they are alike."""
    text = _CPUINFO.read_text(encoding="utf-8") if _CPUINFO.exists() else ""
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {field.strip(): value.strip() for field, _, value in lines}
