"""Compilation of kernels: by Numba at their first call, cached on disk for later processes, or into their callers.

Numba is imported at the first of these calls: that takes 0.4 s, for which a query that places no record need not wait.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numba.core.caching import FunctionCache

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)

log = logging.getLogger(__name__)

_JOBS = Path(__file__).parents[1]
_FOLDERS = ("kernels", "sketches", "partitioners")
"""Folders below ``_JOBS`` that hold all functions from which kernels are compiled."""


class Kernel(Generic[P, R]):
    """A function that Numba compiles when it, or a kernel that calls it, is first called.

    Args:
        function: the function, in the part of Python that Numba's nopython mode compiles.
        options: what ``numba.njit`` is to do otherwise than by default.
        is_cached: whether the machine code is stored for later processes.
    """

    def __init__(self, function: Callable[P, R], options: dict[str, Any], *, is_cached: bool) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._is_cached = function, options, is_cached

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, which is compiled if it has not been called with arguments of these types before."""
        return cast("R", self.dispatcher(*args, **kwargs))

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's own object for the function."""
        from numba import njit

        dispatcher: Any = njit(nogil=True, error_model="numpy", **self._options)(self._function)
        if self._is_cached:
            try:
                # ``Dispatcher.enable_caching`` does the same with Numba's own cache.
                dispatcher._cache = _cache_of(self._function)
            except RuntimeError:  # raised by Numba if no cache directory is writable
                _warn_uncached()
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks of a value in a kernel: the type of the function, by which it finds the function itself."""
        return self.dispatcher._numba_type_


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` in Numba's nopython mode when it is first called; it runs without the GIL.

    The machine code is stored in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__`` beside the source, else
    (for a package installed read-only) in the user's cache directory, ``$XDG_CACHE_HOME/numba`` or ``~/.cache/numba``.
    If none of them is writable, every process compiles for itself and logs one warning.

    A cached kernel is stale when any source file of kernels has changed. Numba itself checks only the file of the
    kernel, not the files of the functions that are compiled into it.
    """
    return Kernel(function, {}, is_cached=True)


def _cache_of(function: Callable[P, R]) -> FunctionCache:
    """Return Numba's cache, with files that are valid for one version of Numba and one set of kernel sources only.

    Numba does not unpickle the index of another version. Its own check for stale sources is a stamp beside the index,
    which is unpickled together with it; that fails if a class in the signature of a kernel has been renamed.
    """
    import numba
    from numba.core.caching import FunctionCache

    cache = FunctionCache(function)  # type: ignore[no-untyped-call]
    cache._cache_file._version = f"{numba.__version__} {_own_digest()}"
    return cache


@functools.cache
def _own_digest() -> str:
    return sources_digest(_JOBS)


def sources_digest(root: Path) -> str:
    """Return the SHA-256 digest of all kernel sources below ``root``, which is a folder ``millrace_jobs``."""
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@functools.cache
def _warn_uncached() -> None:
    log.warning(
        "Numba finds no writable directory for compiled kernels, so each process compiles its own, which "
        "takes seconds; set NUMBA_CACHE_DIR to a writable directory"
    )


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return ``array`` in the one layout that kernels take: contiguous and read-only, copied only if it has gaps.

    Numba compiles a kernel again for each combination of layout and writability that it is called with.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` into each kernel that calls it; for a few steps on arrays that are done per record.

    A call from one kernel to another counts references to the arrays that it passes, atomically, which can take longer
    than the steps themselves. Only the callers are cached on disk: called from Python, the function is compiled again
    in every process.
    """
    return Kernel(function, {"forceinline": True}, is_cached=False)
