"""How the kernels are compiled: by Numba, at their first call, kept on disk for the processes that follow."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)

log = logging.getLogger(__name__)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` in Numba's nopython mode when it is first called, without the GIL.

    The machine code is kept in ``NUMBA_CACHE_DIR`` if that is set, else in the ``__pycache__`` beside the
    source, else (a package installed read-only) in the user's cache directory, ``$XDG_CACHE_HOME/numba`` or
    ``~/.cache/numba``. Where none of them can be written, every process compiles for itself and says so once.

    Numba finds a cached kernel stale when the kernel's own file changes, not when that of a function it calls
    does. What kernels of other files call (``mixing``) must therefore never change its results; since a
    replayed batch has to route as before, it must not anyway.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # Numba's answer when no directory for the cache is writable
        _warn_uncached()
        compiled = njit(**options)(function)
    return cast("Callable[P, R]", compiled)


@functools.cache
def _warn_uncached() -> None:
    log.warning(
        "Numba finds no writable directory for compiled kernels, so each process compiles its own, which "
        "takes seconds; set NUMBA_CACHE_DIR to a writable directory"
    )


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """``array`` as the one layout that kernels take: contiguous and read-only, copied only if it has gaps.

    Numba compiles a kernel anew for each combination of layout and writability it is called with.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
