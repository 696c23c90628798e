"""A forward pass as the host issues it to the device: layer by layer.

What has been issued goes onto the stream in one piece, until somebody looks: a connector's hook
that marks the stream or waits for it cuts the pass there, and so does a host that waits between
two layers. So a pass costs one operation where nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm.model_executor.layers.attention.kv_transfer_utils import maybe_transfer_kv_layer

from sim.device import Gate, Stream
from sim.engine.batch import Batch
from sim.engine.forward import SyntheticModel


class ForwardPass:
    """The pieces of one pass.

    Args:
        layers: all layers with a cache, in the order of the model.
        duration_ns: of the whole pass; each layer gets the same share, and what follows the last.
        gate: where the ranks meet, before the last piece.
    """

    def __init__(
        self,
        stream: Stream,
        model: SyntheticModel,
        batch: Batch,
        layers: Sequence[str],
        duration_ns: int,
        gate: Gate | None,
    ) -> None:
        self._stream = stream
        self._model = model
        self._batch = batch
        self._layers = layers
        self._duration_ns = duration_ns
        self._gate = gate
        self._issued = 0
        self._submitted = 0

    def run_hooked(self, layers: Sequence[str]) -> None:
        """Issue the pass, with vLLM's wrapper around those ``layers`` that have it."""
        if layers:
            self._stream.kernel.call_later(0, self.submit)  # comes up if a hook makes us wait
        with self._stream.holding_back(self.submit):
            for layer in layers:
                _attention(self, layer)
        self._finish()

    def issue(self, layer: str) -> None:
        """The host launches everything up to and including ``layer``."""
        self._issued = self._layers.index(layer) + 1

    def submit(self) -> None:
        """Put on the stream what was issued and is not there yet."""
        first, end = self._submitted, self._issued
        if first < end:
            self._submitted = end
            piece = self._layers[first:end]
            self._stream.enqueue(
                "layers",
                self._reached_ns(end) - self._reached_ns(first),
                at_start=lambda: self._model.read(self._batch, piece),
                at_end=lambda: self._model.write(self._batch, piece),
            )

    def _finish(self) -> None:
        """The rest, sampling included; if nobody has looked, that is the whole pass."""
        model, batch = self._model, self._batch
        rest = self._layers[self._submitted :] if self._submitted else None
        self._issued = 0  # nothing is left for a late submit
        self._stream.enqueue(
            "forward",
            self._duration_ns - self._reached_ns(self._submitted),
            at_start=lambda: model.read_last(batch, rest),
            at_end=lambda: model.write_and_sample(batch, rest),
            gate=self._gate,
        )

    def _reached_ns(self, layer: int) -> int:
        return self._duration_ns * layer // (len(self._layers) + 1)


class DrafterPass:
    """The passes of a drafter, which are one operation on the device.

    Args:
        launch: puts it on the stream.
        passes: how often the drafter runs its layers.
    """

    def __init__(self, launch: Callable[[], None], passes: int) -> None:
        self._launch: Callable[[], None] | None = launch
        self._passes = passes

    def run_hooked(self, layers: Sequence[str]) -> None:
        """Issue the passes, with vLLM's wrapper around ``layers``."""
        for _ in range(self._passes):
            for layer in layers:
                _attention(self, layer)
        self.issue("")

    def issue(self, layer: str) -> None:
        """The host launches ``layer``, and with the first one everything."""
        if self._launch is not None:
            self._launch()
            self._launch = None


def _issue(issuer: ForwardPass | DrafterPass, layer_name: str) -> None:
    issuer.issue(layer_name)


_attention: Callable[[ForwardPass | DrafterPass, str], None] = maybe_transfer_kv_layer(_issue)
"""One attention layer, in vLLM's wrapper."""
