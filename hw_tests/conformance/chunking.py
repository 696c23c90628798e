"""Conformance of ``mori.io``: long transfers in chunks, calls sliced for posting workers."""

from __future__ import annotations

from typing import Any

import torch

from hw_tests.conformance.arm import Arm, Cases, finished

case = Cases("gpu-rdma")

KIB, MIB = 1 << 10, 1 << 20


def _succeeds(status: Any) -> None:
    assert (finished(status).Succeeded(), status.Message()) == (True, "success")


def _pattern(size: int) -> torch.Tensor:
    return (torch.arange(size) * 31 % 251).to(torch.uint8)


@case("2.6", "counts")
def a_single_transfer_becomes_chunks_with_a_post_each(arm: Arm) -> None:
    """As many as its length asks for, but not more than the maximum."""
    lengths = {64 * KIB: 1, 64 * KIB + 1: 2, MIB: 16, 4 * MIB: 64, 8 * MIB: 64}
    pair = arm.pair(size=8 * MIB, enable_transfer_chunking=1, qp_per_transfer=4)
    pair.local.copy_(_pattern(8 * MIB))
    session = pair.session()
    for uid, (length, chunks) in enumerate(lengths.items()):
        before = arm.posted(pair.initiator)
        pair.remote.zero_()
        _succeeds(session.write(0, 0, length, uid))
        after = arm.posted(pair.initiator)
        assert (after[0] - before[0], after[1] - before[1]) == (chunks, chunks)
        assert torch.equal(pair.remote[:length].cpu(), pair.local[:length].cpu())
        assert not pair.remote[length:].any()


@case("2.6", "counts")
def lengths_and_numbers_of_chunks_are_configurable(arm: Arm) -> None:
    """``chunk_bytes`` and ``max_chunks_per_transfer``; without chunking there is one post."""
    for enabled, length, most, chunks in (
        (1, 4096, 64, 64),
        (1, 100_000, 64, 11),
        (1, 64 * KIB, 5, 5),
        (0, 4096, 64, 1),
    ):
        pair = arm.pair(
            enable_transfer_chunking=enabled, chunk_bytes=length, max_chunks_per_transfer=most
        )
        _succeeds(pair.session().read(0, 0, MIB, 0))
        assert arm.posted(pair.initiator) == (chunks, chunks)


@case("2.6", "counts")
def a_batch_is_merged_first_and_then_cut(arm: Arm) -> None:
    """What is short stays whole, and a chunk never crosses a segment."""
    pair = arm.pair(enable_transfer_chunking=1)
    pair.local.copy_(_pattern(MIB))
    session = pair.session()
    contiguous = [i * 4096 for i in range(64)]
    _succeeds(session.batch_write(contiguous, contiguous, [4096] * 64, 0))
    assert arm.posted(pair.initiator) == (4, 1)
    # Three segments of 40, 100 and 60 KiB in one work request of 200: chunks of 50 KiB at most,
    # cut again where the second and third segment begin.
    sizes = [40 * KIB, 100 * KIB, 60 * KIB]
    local, remote = [0, 300 * KIB, 600 * KIB], [512 * KIB, 552 * KIB, 652 * KIB]
    before = arm.posted(pair.initiator)[0]
    _succeeds(session.batch_write(local, remote, sizes, 1))
    assert arm.posted(pair.initiator)[0] - before == 6
    for here, there, size in zip(local, remote, sizes, strict=True):
        assert torch.equal(
            pair.remote[there : there + size].cpu(), pair.local[here : here + size].cpu()
        )
    apart = [i * 16 * KIB for i in range(8)]
    before = arm.posted(pair.initiator)[0]
    _succeeds(session.batch_write(apart, apart, [8 * KIB] * 8, 2))
    assert arm.posted(pair.initiator)[0] - before == 8


@case("2.6", "counts")
def workers_post_slices_of_a_batch(arm: Arm) -> None:
    """As many as there are workers and queue pairs; merging stays within a slice."""
    contiguous = [i * 4096 for i in range(64)]
    apart = [i * 8192 for i in range(10)]
    for qps, workers, slices in ((4, 4, 4), (4, 2, 2), (2, 4, 2), (4, 1, 4), (1, 4, 1)):
        pair = arm.pair(qp_per_transfer=qps, num_worker_threads=workers)
        pair.local.copy_(_pattern(MIB))
        session = pair.session()
        _succeeds(session.batch_write(apart, apart, [4096] * 10, 0))
        assert arm.posted(pair.initiator) == (10, slices)
        _succeeds(session.batch_write(contiguous, contiguous, [4096] * 64, 1))
        merged = 1 if workers == 1 else slices
        assert arm.posted(pair.initiator) == (10 + merged, slices + merged)
        assert torch.equal(pair.remote[: 256 * KIB].cpu(), pair.local[: 256 * KIB].cpu())


@case("2.6", "counts", over=())
def workers_leave_single_transfers_and_chunks_of_host_memory_alone(arm: Arm) -> None:
    """Those are posted by the caller, and merged over the whole batch."""
    pair = arm.pair(qp_per_transfer=4, num_worker_threads=4, enable_transfer_chunking=1)
    session = pair.session()
    _succeeds(session.write(0, 0, 64, 0))
    assert arm.posted(pair.initiator) == (1, 1)
    contiguous = [i * 4096 for i in range(64)]
    _succeeds(session.batch_write(contiguous, contiguous, [4096] * 64, 1))
    assert arm.posted(pair.initiator)[0] == 1 + 4


@case("2.6", "counts", "gpu-rdma", over=())
def workers_do_not_merge_chunks_of_gpu_memory(arm: Arm) -> None:
    """Each item is cut by itself, in the order given."""
    rdma = {"qp_per_transfer": 4, "num_worker_threads": 4, "enable_transfer_chunking": 1}
    pair = arm.gpu_pair(size=MIB, backends=("RDMA",), rdma=rdma)
    session = pair.session()
    contiguous = [i * 4096 for i in range(64)]
    _succeeds(session.batch_write(contiguous, contiguous, [4096] * 64, 0))
    assert arm.posted(pair.initiator) == (64, 4)
    _succeeds(session.batch_write([0, 256 * KIB], [0, 256 * KIB], [128 * KIB] * 2, 1))
    assert arm.posted(pair.initiator) == (68, 6)


@case("2.6", "completions")
def the_call_returns_when_every_worker_has_posted(arm: Arm) -> None:
    """One slice that finds no room for a while holds up the whole call."""
    pair = arm.pair(qp_per_transfer=2, num_worker_threads=2, max_send_wr=4)
    session = pair.session()
    arm.hold(pair.initiator, 0.1)
    filler = [session.write(i * 128, i * 128, 8, 1) for i in range(4)]  # odd: the second one
    began = arm.seconds()
    offsets = [i * 128 for i in range(4)]
    status = session.batch_write(offsets, offsets, [8] * 4, 0)
    assert 0.09 < arm.seconds() - began < 1
    assert all(finished(one).Succeeded() for one in [*filler, status])


@case("0.3", "completions")
def a_slice_without_room_fails_the_call_and_the_others_land(arm: Arm) -> None:
    """As without workers; the text counts the slice's queue pairs, of which there is one."""
    pair = arm.pair(qp_per_transfer=2, num_worker_threads=2, max_send_wr=16)
    session = pair.session()
    pair.local.fill_(9)
    arm.hold(pair.initiator, 8)
    filler = [session.write(i * 128, i * 128, 8, 1) for i in range(16)]
    offsets = [100_000 + i * 128 for i in range(20)]
    status = session.batch_write(offsets, offsets, [8] * 20, 0)
    assert status.Message().startswith("SQ full (batch): ep=0 depth=16 requested=10 max=16 ")
    assert all(finished(one).Succeeded() for one in filler)
    assert int(pair.remote[100_000:].count_nonzero()) == 80
