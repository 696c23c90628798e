"""The exceptions to the rule against impure calls in the simulator, each with its reason.

Keys are (file, full name of what is used). An entry that no code needs any more is an error.
"""

from __future__ import annotations

ALLOWED: dict[tuple[str, str], str] = {
    ("sim/kernel/seed.py", "random.Random"): (
        "the one place where the seed becomes named streams; everything else draws from those"
    ),
    ("sim/guest/shared_clock.py", "id"): (
        "recognises the real clock functions by identity; the numbers order nothing"
    ),
    ("sim/guest/facades/clock.py", "time.gmtime"): (
        "splits a given moment of virtual time into date and time; reads no clock"
    ),
    ("sim/guest/stopwatch.py", "time.thread_time_ns"): (
        "how long code under test runs between calls of facades, for the benchmark"
    ),
    ("sim/stopwatch.py", "time.perf_counter"): (
        "measures wall time for people; nothing in a run depends on it"
    ),
    **{
        ("sim/guest/entropy.py", name): "gives shared generators the run's seed, and takes it back"
        for name in (
            "random.getstate",
            "random.setstate",
            "random.seed",
            "numpy.random.get_state",
            "numpy.random.set_state",
            "numpy.random.seed",
            "torch.manual_seed",
            "os.urandom",
        )
    },
}
