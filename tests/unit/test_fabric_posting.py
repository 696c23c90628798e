from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sim.errors import UsageError
from sim.fabric import Fabric
from sim.fabric.mori.chunks import Chunking
from sim.fabric.mori.config import RdmaBackendConfig
from sim.fabric.mori.enums import PollCqMode
from sim.fabric.mori.settings import MoriSettings
from sim.fabric.mori_io import make
from sim.fabric.timers import Timers
from sim.fabric.work import Segments
from sim.kernel import Kernel, Node, Process, Seed
from sim.units import US

KIB = 1024


def _run(body: Any, **values: Any) -> Any:
    """``body(session, fabric)`` with a session of an engine configured by ``values``."""
    results = []

    def main() -> None:
        engines, descs = [], []
        for key in ("p", "d"):
            engine = mori.IOEngine(key, mori.IOEngineConfig("10.0.0.1", 0))
            config = mori.RdmaBackendConfig()
            for name, value in {"enable_notification": False, **values}.items():
                setattr(config, name, value)
            engine.create_backend(mori.BackendType.RDMA, config)
            engines.append(engine)
            descs.append(engine.register_torch_tensor(torch.zeros(1 << 20, dtype=torch.uint8)))
        engines[1].register_remote_engine(engines[0].get_engine_desc())
        results.append(body(engines[1].create_session(descs[1], descs[0]), fabric))

    with Kernel(Seed(1)).running() as kernel:
        fabric = Fabric(kernel)
        mori = make(kernel, fabric)
        process = Process(Node("n", "10.0.0.1"), "w")
        kernel.spawn(process, main, name="main", guest=False)
        kernel.run(until_ns=100_000_000_000)
    assert results
    return results[0]


def _posted(fabric: Fabric) -> list[tuple[int, int]]:
    """Queue pair and work requests of each post, in order."""
    first = fabric.devices[1].queue_pairs[0].number
    per_connection = 2  # each end has a number of its own
    return [
        ((r.fields["queue_pair"] - first) // per_connection, r.fields["work_requests"])
        for r in fabric.kernel.log.records
        if r.kind == "posted"
    ]


@pytest.mark.parametrize("uid", [0, 1, 6])
def test_slices_go_to_queue_pairs_in_turn_from_the_transfers_number(uid: int) -> None:
    """Slice i to queue pair (i + number) modulo their count; the last slice is the short one."""

    def body(session: Any, fabric: Fabric) -> list[tuple[int, int]]:
        offsets = [i * 8192 for i in range(10)]
        session.batch_write(offsets, offsets, [64] * 10, uid).Wait()
        return sorted(_posted(fabric))

    found = _run(body, qp_per_transfer=4, num_worker_threads=4)
    assert found == sorted(((i + uid) % 4, n) for i, n in enumerate([3, 3, 3, 1]))


def test_slices_are_of_the_list_as_given() -> None:
    """Sorting and merging happen within each, so neighbours in different ones stay apart."""

    def body(session: Any, fabric: Fabric) -> list[int]:
        offsets = [i * 64 for i in (0, 2, 1, 3)]
        session.batch_write(offsets, offsets, [64] * 4, 0).Wait()
        return sorted(n for _queue_pair, n in _posted(fabric))

    assert _run(body, qp_per_transfer=2, num_worker_threads=2) == [2, 2]
    assert _run(body, qp_per_transfer=2, num_worker_threads=1) == [1]


def test_workers_post_at_the_same_time() -> None:
    """Half the time for two of them, plus what a call costs."""

    def body(session: Any, fabric: Fabric) -> int:
        offsets = [i * 1024 for i in range(1000)]
        session.batch_write(offsets, offsets, [8] * 1000, 0)
        return fabric.kernel.now_ns

    alone = _run(body, qp_per_transfer=2, num_worker_threads=1)
    together = _run(body, qp_per_transfer=2, num_worker_threads=2)
    assert alone - together == pytest.approx(500 * 50, abs=2 * US)


def test_a_refused_slice_leaves_the_others_to_land() -> None:
    """The range is checked slice by slice."""

    def body(session: Any, fabric: Fabric) -> tuple[str, str, list[tuple[int, int]]]:
        status = session.batch_write([0, 1 << 20], [0, 0], [8, 8], 0)
        return str(status.Code()), status.Message(), _posted(fabric)

    code, message, posted = _run(body, qp_per_transfer=2, num_worker_threads=2)
    assert (code, message) == ("StatusCode.ERR_INVALID_ARGS", "length out of range")
    assert posted == [(0, 1)]


def test_several_nics_leave_posting_to_the_caller() -> None:
    """As in the library; the NICs themselves are not simulated."""

    def body(session: Any, fabric: Fabric) -> int:
        return sum("rdma-poster" in task.name for task in fabric.kernel.tasks)

    assert _run(body, qp_per_transfer=2, num_worker_threads=4) == 4  # two engines, two each
    assert _run(body, qp_per_transfer=2, num_worker_threads=4, num_nics_per_transfer=2) == 0


# --------------------------------------------------------------------- chunks


def _segments(*work_requests: list[int]) -> Segments:
    sizes = np.array([size for request in work_requests for size in request])
    offsets = np.cumsum(sizes) - sizes
    counts = [len(request) for request in work_requests]
    firsts = np.cumsum(counts) - np.array(counts)
    return Segments(offsets * 2, offsets, sizes, firsts)


def test_chunks_cover_the_work_request_and_stay_within_segments() -> None:
    """In order, without a gap, equal but for what a segment's end cuts."""
    cut = Chunking(64 * KIB, 64, 2**31).apply(_segments([40 * KIB, 100 * KIB, 60 * KIB]))
    assert (cut.sizes // KIB).tolist() == [40, 10, 50, 40, 10, 50]
    assert cut.first_segments.tolist() == [0, 1, 2, 3, 4, 5]
    assert (cut.remote_offsets // KIB).tolist() == [0, 40, 50, 100, 140, 150]
    assert (cut.local_offsets // KIB).tolist() == [0, 80, 90, 140, 280, 290]


def test_only_long_segments_are_cut() -> None:
    """A work request of short segments stays whole, also beside one that is cut."""
    segments = _segments([40 * KIB, 40 * KIB], [8], [128 * KIB])
    cut = Chunking(64 * KIB, 64, 2**31).apply(segments)
    assert cut.sizes.tolist() == [40 * KIB, 40 * KIB, 8, 64 * KIB, 64 * KIB]
    assert cut.first_segments.tolist() == [0, 2, 3, 4]
    short = _segments([40 * KIB, 40 * KIB], [8])
    assert Chunking(64 * KIB, 64, 2**31).apply(short) is short


def test_the_ports_limit_beats_the_maximum_number() -> None:
    """More chunks than allowed, rather than a message that is too long."""
    assert Chunking(64 * KIB, 2, 100 * KIB).chunk_length(1000 * KIB) == 100 * KIB
    assert Chunking(64 * KIB, 2, 2**31).chunk_length(1000 * KIB) == 500 * KIB


# ------------------------------------------------------------------- settings


def test_the_environment_overrides_configurations() -> None:
    """Numbers, words for switches; the caller's object stays as it was."""
    environ = {
        "MORI_IO_QP_PER_TRANSFER": "4",
        "MORI_IO_POST_BATCH_SIZE": "-1",
        "MORI_IO_NUM_WORKER_THREADS": "2",
        "MORI_IO_POLL_CQ_MODE": "1",
        "MORI_IO_ENABLE_NOTIFICATION": "off",
        "MORI_IO_ENABLE_CHUNKING": "true",
        "MORI_IO_CHUNK_BYTES": "8192",
        "MORI_IO_MAX_CHUNKS": "7",
        "MORI_IO_QP_MAX_MSG_SGE": "2",
    }
    asked = RdmaBackendConfig(post_batch_size=16)
    asked.max_send_wr = 32
    got = MoriSettings.from_environ(environ).applied_to(asked)
    assert (got.qp_per_transfer, got.post_batch_size, got.num_worker_threads) == (4, -1, 2)
    assert got.poll_cq_mode == PollCqMode.EVENT
    assert (got.enable_notification, got.enable_transfer_chunking) == (False, True)
    assert (got.chunk_bytes, got.max_chunks_per_transfer, got.max_msg_sge) == (8192, 7, 2)
    assert got.max_send_wr == 32
    assert asked.post_batch_size == 16


def test_values_out_of_range_are_ignored() -> None:
    """The default stays, or what the older spelling said."""
    environ = {"MORI_IO_QP_PER_TRANSFER": "0", "MORI_IO_QP_TIMEOUT": "32"}
    settings = MoriSettings.from_environ({**environ, "MORI_RDMA_QP_RETRY_CNT": "3"})
    assert settings.applied_to(RdmaBackendConfig()).qp_per_transfer == 1
    assert settings.timers == Timers(timeout=14, retry_count=3)
    both = {"MORI_RDMA_QP_TIMEOUT": "12", "MORI_IO_QP_TIMEOUT": "99"}
    assert MoriSettings.from_environ(both).timers == Timers(timeout=12)
    assert MoriSettings.from_environ({}).timers is None
    with pytest.raises(UsageError, match=r"MORI_IO_CHUNK_BYTES='many'.*65536"):
        MoriSettings.from_environ({"MORI_IO_CHUNK_BYTES": "many"})
