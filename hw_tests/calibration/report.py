"""What a calibration writes: the fabric's file, and the comparison of measured with simulated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

import msgspec

from hw_tests.calibration.fit import Fit
from hw_tests.calibration.rows import Row
from sim.fabric import FabricProfile

NEVER = ("timers", "max_message_bytes", "control_exchange_ns", "nics_per_node")
"""Keys of a fabric that latencies of transfers say nothing about."""


class Compared(NamedTuple):
    """A row, and the latency of the same requests on the simulated library."""

    row: Row
    simulated_us: float

    @property
    def error(self) -> float:
        """Simulated over measured latency, less one."""
        return self.simulated_us / self.row.latency_us - 1


def fabric_toml(fit: Fit, source: str) -> str:
    """A file for ``--fabric``, with what is not known as comments."""
    document = msgspec.to_builtins(fit.profile)
    timers = document.pop("timers")
    fitted_to = "".join(each if each.isprintable() else "?" for each in source)
    lines = [
        f"# Fitted to {fitted_to}",
        f"# Closed form: {fit.rms:.2%} rms, {fit.worst:.2%} at most.",
    ]
    for name, others in fit.undetermined.items():
        lines.append(f"# {name}: {_reason(others)}")
    lines.append(f"# No latency says anything about {', '.join(NEVER)}.")
    # A character beyond 16 bits is two escapes in JSON, and none of TOML's.
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in document.items()]
    lines += ["", "[timers]", *(f"{key} = {value}" for key, value in timers.items())]
    return "\n".join(lines) + "\n"


def _reason(others: Sequence[str]) -> str:
    if not others:
        return "the rows do not depend on it; kept"
    return f"not told apart from {', '.join(others)}; as near as possible to what it was"


def document(
    compared: Sequence[Compared],
    fit: Fit | None,
    profile: FabricProfile,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The comparison, as JSON."""
    sums = {
        backend: summary([one for one in compared if one.row.shape.backend == backend])
        for backend in sorted({one.row.shape.backend for one in compared})
    }
    return {
        "settings": dict(settings),
        "fabric": msgspec.to_builtins(profile),
        "undetermined": fit.undetermined if fit else {},
        "never_determined": list(NEVER),
        "summary": sums,
        "rows": [
            {
                **msgspec.to_builtins(one.row.shape),
                "devices": one.row.devices,
                "measured_us": round(one.row.latency_us, 3),
                "simulated_us": round(one.simulated_us, 3),
                "error": round(one.error, 5),
            }
            for one in compared
        ],
    }


def summary(compared: Sequence[Compared]) -> dict[str, Any]:
    """Errors over rows, of which there is one at least."""
    worst = max(compared, key=lambda one: abs(one.error))
    rms = sqrt(sum(one.error**2 for one in compared) / len(compared))
    return {
        "rows": len(compared),
        "rms_error": round(rms, 5),
        "worst_error": round(worst.error, 5),
        "worst_row": str(worst.row.shape),
    }


def table(found: Mapping[str, Any]) -> str:
    """The comparison for people."""
    head = ["backend", "op", "bytes", "batch", "queue pairs", "calls"]
    head += ["measured us", "simulated us", "error"]
    lines = [head]
    for row in found["rows"]:
        keys = ("backend", "op", "message_bytes", "batch", "qps", "calls")
        figures = [
            f"{row['measured_us']:.2f}",
            f"{row['simulated_us']:.2f}",
            f"{row['error']:+.1%}",
        ]
        lines.append([*(str(row[key]) for key in keys), *figures])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.rjust, line, widths)) for line in lines]
    for backend, of in found["summary"].items():
        text.append(
            f"{backend}: {of['rows']} rows, {of['rms_error']:.2%} rms, {of['worst_error']:+.2%} at "
            f"{of['worst_row']}"
        )
    for name, others in found["undetermined"].items():
        text.append(f"{name}: {_reason(others)}")
    text += [found["note"]] if "note" in found else []
    return "\n".join(text) + "\n"
