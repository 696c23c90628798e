"""Cache tensors as connectors see them: what they do with the bytes is ordered on the stream.

On hardware a copy from or into a cache is queued on a stream of the device, behind the kernels that
were launched on it before. Here the caller waits until the stream is that far and then does it; on
a stream of its own it takes time, too.
Looking at shapes, strides and addresses, and making views, waits for nothing.

What is written through such a tensor or a view of it is noted. What is written past torch, or
through a tensor that was made of the bare storage, is not: only ``check: full`` looks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sim.device import Stream, chosen_stream

Integers = npt.NDArray[np.int64]
OnWrite = Callable[[Integers, Integers], None]

_LOOKS = frozenset(
    (
        "__get__",  # every property: shape, dtype, device, and views such as T and data
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

    ``wrote`` is told where what was changed through it begins, as an array of addresses, and how
    many bytes each piece has.
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
            source = next(_device_tensors((*args, *kwargs.values())))
            if name in _LOOKS:
                result = func(*args, **kwargs)
                return _as_seen(result, source) if _shares_memory(result, source) else result
            stream = chosen_stream(source.stream)
            if _changes_something(name, kwargs):
                stream.synchronize()
                result = func(*args, **kwargs)
                key = args[1] if name == "__setitem__" else ...
                out = kwargs.get("out")
                for changed in _device_tensors(args[0] if out is None else out):
                    changed.wrote(*_pieces(changed, key))
                return result
            if name in _COPIES_TO_HOST:
                return stream.copied(
                    lambda: func(source.clone(), *args[1:], **kwargs), _num_bytes(source)
                )
            result = func(*args, **kwargs)
            if _shares_memory(result, source):
                return _as_seen(result, source)
            return stream.copied(lambda: func(*args, **kwargs), _num_bytes(result))


def _device_tensors(value: Any) -> Iterator[DeviceTensor]:
    if isinstance(value, DeviceTensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _device_tensors(each)


def _as_seen(result: Any, source: DeviceTensor) -> Any:
    """``result``, which is one or several views of ``source``, seen like it."""
    return _map(result, lambda view: DeviceTensor.on(source.stream, view, source.wrote))


def _num_bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _changes_something(name: str, kwargs: dict[str, Any]) -> bool:
    in_place = name.endswith("_") and not name.endswith("__")
    return name == "__setitem__" or in_place or kwargs.get("out") is not None


def _pieces(tensor: torch.Tensor, key: Any) -> tuple[Integers, Integers]:
    """Where ``tensor[key]`` lies: the beginnings and the lengths of its pieces, in bytes."""
    size = tensor.element_size()
    addresses = torch.tensor(tensor.data_ptr())
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        addresses = addresses.unsqueeze(-1) + torch.arange(length) * (stride * size)
    elements = np.unique(addresses[key].numpy())
    firsts = np.flatnonzero(np.diff(elements, prepend=-1) != size)
    return elements[firsts], np.diff(firsts, append=len(elements)) * size


def _shares_memory(result: Any, source: torch.Tensor) -> bool:
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    if not isinstance(first, torch.Tensor):
        return False
    return bool(first.untyped_storage().data_ptr() == source.untyped_storage().data_ptr())


def _map(result: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(result, torch.Tensor):
        return change(result)
    return type(result)(map(change, result))
