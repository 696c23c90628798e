"""Digests of what a rank's caches hold, computed in a thread of their own.

The bytes are copied to the host on a stream of this thread, which waits for no other: what is
digested was written before it was handed over, or by the network card. Nothing is started before
the first digest is wanted.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from connector.core.errors import MalformedPayload
from connector.core.verification import MOST_BYTES, Blocks, Digest
from connector.memory import CacheMemory

T = TypeVar("T")


class Digester:
    """Computes one digest after the other.

    Args:
        memory: of this rank.
    """

    def __init__(self, memory: CacheMemory) -> None:
        self._layers = {layer.name: layer for layer in memory.layers}
        self._num_blocks = memory.num_blocks
        self._device = memory.layers[0].cache.device
        self._thread = ThreadPoolExecutor(1, "hybrid-digests")
        self._stream: torch.cuda.Stream | None = None

    def run(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job`` in the thread, after all that was given before."""
        return self._thread.submit(job)

    def digests(self, blocks: Iterable[Blocks]) -> tuple[Digest, ...]:
        """One for each layer's part of each block, in order; only for jobs in the thread."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(device=self._device)
        found: list[Digest] = []
        with torch.cuda.stream(self._stream):
            for layer, ids in blocks:
                rows = self._layers[layer].contents(ids).numpy()
                found += [zlib.crc32(row) for row in rows]
        return tuple(found)

    def check(self, blocks: Iterable[Blocks]) -> None:
        """See that a peer asks for something that there is, and not for too much at once.

        Raises:
            MalformedPayload: naming the layer and the block.
        """
        size = count = 0
        for name, ids in blocks:
            layer = self._layers.get(name)
            if layer is None:
                raise MalformedPayload(f"digests are asked for of a layer {name!r}: there is none")
            for block in ids:
                if not 0 <= block < self._num_blocks:
                    raise MalformedPayload(
                        f"digests are asked for of block {block} of {name}; it has "
                        f"{self._num_blocks}"
                    )
            count += len(ids)
            size += len(ids) * layer.blocks.size
        if size > MOST_BYTES and count > 1:
            raise MalformedPayload(
                f"digests are asked for of {size} bytes at once; the most is {MOST_BYTES}"
            )

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
