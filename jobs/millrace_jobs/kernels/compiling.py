"""How the kernels are compiled: by Numba, at their first call, kept on disk for the processes that follow."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba import njit
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)

log = logging.getLogger(__name__)

_JOBS = Path(__file__).parents[1]
_FOLDERS = ("kernels", "sketches", "partitioners")
"""Where all functions are that kernels consist of, below ``_JOBS``."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` in Numba's nopython mode when it is first called, without the GIL.

    The machine code is kept in ``NUMBA_CACHE_DIR`` if that is set, else in the ``__pycache__`` beside the
    source, else (a package installed read-only) in the user's cache directory, ``$XDG_CACHE_HOME/numba`` or
    ``~/.cache/numba``. Where none of them can be written, every process compiles for itself and says so once.

    A cached kernel is stale when any source file of kernels has changed. Numba itself looks only at the file of the
    kernel, not at the files of the functions that are compiled into it.
    """
    compiled: Any = njit(nogil=True, error_model="numpy")(function)
    try:
        # As ``Dispatcher.enable_caching`` does with a cache of Numba's own.
        compiled._cache = _KernelCache(function)
    except RuntimeError:  # Numba's answer when no directory for the cache is writable
        _warn_uncached()
    return cast("Callable[P, R]", compiled)


class _KernelCache(FunctionCache):
    """Numba's cache, whose files are of no use to other versions of Numba, nor to other sources of kernels.

    Numba does not unpickle the index of another version. A stamp beside the index, which it has for stale sources, is
    unpickled with it, and that fails where a class in the signature of a kernel has another name since.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file._version = f"{numba.__version__} {_own_digest()}"


@functools.cache
def _own_digest() -> str:
    return sources_digest(_JOBS)


def sources_digest(root: Path) -> str:
    """Return the SHA-256 digest of all files below ``root``, a folder ``millrace_jobs``, that kernels are made of."""
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
    """``array`` as the one layout that kernels take: contiguous and read-only, copied only if it has gaps.

    Numba compiles a kernel again for each combination of layout and writability it is called with.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
