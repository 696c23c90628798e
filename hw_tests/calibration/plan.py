"""Which shapes are measured: one sweep for each number that is to be told from the others."""

from __future__ import annotations

from collections.abc import Iterator

from hw_tests.calibration.rows import Shape

_KIB = 1 << 10
_LONE = [_KIB << step for step in range(0, 17, 2)]  # 1 KiB to 64 MiB
_BATCHED = [8, 64, 512, 4 * _KIB, 16 * _KIB, 64 * _KIB, 256 * _KIB, 1024 * _KIB]


def shapes(backend: str, *, first: bool = False) -> list[Shape]:
    """All that is measured over ``backend``; with ``first`` a third of it, from every sweep.

    XGMI has no queue pairs.
    """
    return [shape for op in ("read", "write") for shape in _of(backend, op, first)]


def _of(backend: str, op: str, first: bool) -> list[Shape]:
    sweeps = [_sizes(), _batches(), _queue_pairs(), _calls()]
    chosen = [list(sweep)[:: 3 if first else 1] for sweep in sweeps]
    found = [Shape(backend, op, *numbers) for sweep in chosen for numbers in sweep]
    if backend != "rdma":
        found = [shape for shape in found if shape.qps == 1]
    return list(dict.fromkeys(found))


def _sizes() -> Iterator[tuple[int, ...]]:
    """Rates, and the latency of a single message."""
    yield from ((size, 1, 1) for size in _LONE)
    yield from ((size, 128, 4) for size in _BATCHED)


def _batches() -> Iterator[tuple[int, ...]]:
    """The cost of a work request, at the host (many queue pairs) and in the NIC (one)."""
    yield from ((_KIB, batch, qps) for qps in (1, 16) for batch in (4, 32, 256, 1024, 4096))


def _queue_pairs() -> Iterator[tuple[int, ...]]:
    """The cost of a post, and the most that one queue pair gets."""
    yield from ((_KIB, 64, qps) for qps in (1, 2, 4, 8, 16))
    yield from ((256 * _KIB, 64, qps) for qps in (1, 4))


def _calls() -> Iterator[tuple[int, ...]]:
    """What a call costs its caller, apart from what comes after it."""
    sweep = [(batch, qps) for batch in (1, 32) for qps in (1, 4)]
    yield from ((_KIB, batch, qps, calls) for calls in (2, 8) for batch, qps in sweep)
