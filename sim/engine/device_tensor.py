"""Cache tensors as connectors see them: what they do with the bytes is ordered on the stream.

On hardware a copy from or into a cache is queued on a stream of the device, behind the kernels that
were launched on it before. Here the caller waits until the stream is that far and then does it; on
a stream of its own it takes time, too.
Looking at shapes, strides and addresses, and making views, waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sim.device import Stream, chosen_stream

Addresses = npt.NDArray[np.int64]
OnWrite = Callable[[Addresses], None]

_LOOKS = frozenset(
    (
        "__get__",  # every property: shape, dtype, device, ...
        "__len__",
        "data_ptr",
        "dim",
        "element_size",
        "is_contiguous",
        "nelement",
        "numel",
        "size",
        "storage_offset",
        "stride",
        "untyped_storage",
    )
)
_COPIES_TO_HOST = frozenset(("cpu", "numpy", "tolist", "item"))


class DeviceTensor(torch.Tensor):
    """A view of a rank's caches, and whatever is a view of it in turn.

    ``wrote`` is told the addresses of what was changed through it, as an array.
    """

    stream: Stream
    wrote: OnWrite

    @classmethod
    def on(cls, stream: Stream, tensor: torch.Tensor, wrote: OnWrite) -> DeviceTensor:
        """``tensor`` itself, as a connector sees it."""
        view: DeviceTensor = tensor.as_subclass(cls)
        view.stream = stream
        view.wrote = wrote
        return view

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every operation on such a tensor comes by here."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            name = func.__name__
            if name in _LOOKS:
                return func(*args, **kwargs)
            source = next(a for a in (*args, *kwargs.values()) if isinstance(a, DeviceTensor))
            stream = chosen_stream(source.stream)
            if _changes_its_argument(name):
                stream.synchronize()
                result = func(*args, **kwargs)
                if args[0] is source:
                    source.wrote(_addresses(source, args[1] if name == "__setitem__" else ...))
                return result
            if name in _COPIES_TO_HOST:
                return stream.copied(
                    lambda: func(source.clone(), *args[1:], **kwargs), _num_bytes(source)
                )
            result = func(*args, **kwargs)
            if _shares_memory(result, source):
                return _map(result, lambda view: cls.on(source.stream, view, source.wrote))
            return stream.copied(lambda: func(*args, **kwargs), _num_bytes(result))


def _num_bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _changes_its_argument(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _addresses(tensor: torch.Tensor, key: Any) -> Addresses:
    """Where the elements ``tensor[key]`` begin, one of each run along the last dimension."""
    size = tensor.element_size()
    addresses = torch.tensor(tensor.data_ptr())
    for dim, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        is_run = dim == tensor.dim() - 1
        steps = torch.zeros(length, dtype=torch.int64) if is_run else torch.arange(length)
        addresses = addresses.unsqueeze(-1) + steps * (stride * size)
    return np.unique(addresses[key].numpy())


def _shares_memory(result: Any, source: torch.Tensor) -> bool:
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    if not isinstance(first, torch.Tensor):
        return False
    return bool(first.untyped_storage().data_ptr() == source.untyped_storage().data_ptr())


def _map(result: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(result, torch.Tensor):
        return change(result)
    return type(result)(map(change, result))
