"""Errors of torch in simulated threads.

Each of torch's C++ errors remembers the native stack. Greenlets take turns at one native stack, and
above the frames of the one that runs lies what others have left there, so looking through it can
end the process. Nobody reads these stacks: Python's own are kept as always.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from pathlib import Path

import torch

_SETTER = (
    "_ZN3c1020SetStackTraceFetcherESt8functionIFSt10shared_ptrIKNS_9LazyValueINSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEEEEEvEE"
)
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_Fetcher = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def _no_stack(result: int, _functor: int) -> int:
    """A null ``shared_ptr`` where the caller wants its result, which is what torch has for none."""
    ctypes.memset(result, 0, 2 * _POINTER)
    return result


_FETCHER = _Fetcher(_no_stack)  # for as long as torch may call it


@cache
def keep_no_native_stacks() -> None:
    """Let torch's errors be made without their native stacks, in this process and for good.

    A `std::function` is two words of data, then two functions: one that copies and destroys the
    data, for which any that does nothing serves, and the one that is called. Elsewhere than on
    x86-64 with GNU's library the result comes by another way, so nothing is changed.
    """
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    if platform.machine() != "x86_64" or not library.exists():
        return
    setter = getattr(ctypes.CDLL(str(library)), _SETTER, None)
    if setter is None:
        return
    nothing_to_copy = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)
    call = ctypes.cast(_FETCHER, ctypes.c_void_p)
    setter.argtypes, setter.restype = [ctypes.c_void_p], None
    setter(ctypes.byref((ctypes.c_void_p * 4)(None, None, nothing_to_copy, call)))
