"""The cache of kernels on disk, which is Numba's own but for what makes a kernel stale; importing it imports Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache


def cache_on_disk(dispatcher: Any, function: Callable[..., Any], sources: str) -> bool:
    """Give a kernel a cache on disk; return False if no cache directory is writable.

    ``Dispatcher.enable_caching`` does the same with Numba's own cache.

    Args:
        dispatcher: Numba's dispatcher of the kernel.
        function: the function that it compiles.
        sources: digest of all sources of kernels.
    """
    try:
        dispatcher._cache = _KernelCache(function, sources)
    except RuntimeError:
        return False
    return True


class _KernelCache(FunctionCache):
    """Numba's cache, with files that are valid for one version of Numba and one set of kernel sources only.

    Numba does not unpickle the index of another version. Its own check for stale sources is a stamp beside the index,
    which is unpickled together with it; that fails if a class in the signature of a kernel has been renamed.
    """

    def __init__(self, function: Callable[..., Any], sources: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file._version = f"{numba.__version__} {sources}"
