"""Compilation of kernels: by Numba at their first call, cached on disk for later processes, or into their callers."""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numba.core.types import Type

P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)

log = logging.getLogger(__name__)

_JOBS = Path(__file__).parents[1]
_FOLDERS = ("kernels", "sketches", "partitioners")
"""Folders below ``_JOBS`` that hold all functions from which kernels are compiled."""


class Kernel(Generic[P, R]):
    """A function that Numba compiles when it is first called, also by the code of another kernel.

    Numba is imported then, which takes 0.2 s of processor time: a driver whose query routes nothing calls no kernel.

    Args:
        function: the function.
        options: Numba's options beyond those of all kernels.
        is_cached: whether machine code is stored on disk.
    """

    def __init__(self, function: Callable[P, R], *, is_cached: bool, **options: bool) -> None:
        functools.update_wrapper(self, function)
        self._function, self._is_cached, self._options = function, is_cached, options

    @cached_property
    def compiled(self) -> Any:
        """Numba's dispatcher of the function."""
        from numba import njit

        from .cache import cache_on_disk

        decorate: Any = njit
        dispatcher = decorate(nogil=True, error_model="numpy", **self._options)(self._function)
        if self._is_cached and not cache_on_disk(dispatcher, self._function, _own_digest()):
            _warn_uncached()
        return dispatcher

    @property
    def _numba_type_(self) -> Type:
        """The type of the function in the code of another kernel, for which Numba asks by this name."""
        kind: Type = self.compiled._numba_type_
        return kind

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the machine code; compile or load it first, if it has not been called with such arguments."""
        return cast("R", self.compiled(*arguments, **named))

    def __reduce__(self) -> str:
        """Pickle by name, like a function."""
        return self.__qualname__  # type: ignore[attr-defined, no-any-return] # set by ``update_wrapper``


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` in Numba's nopython mode when it is first called; it runs without the GIL.

    The machine code is stored in ``NUMBA_CACHE_DIR`` if that is set, else in ``__pycache__`` beside the source, else
    (for a package installed read-only) in the user's cache directory, ``$XDG_CACHE_HOME/numba`` or ``~/.cache/numba``.
    If none of them is writable, every process compiles for itself and logs one warning.

    A cached kernel is stale when any source file of kernels has changed. Numba itself checks only the file of the
    kernel, not the files of the functions that are compiled into it.
    """
    return Kernel(function, is_cached=True)


def load_numba() -> None:
    """Import Numba, in a process from which others are forked that call kernels."""
    importlib.import_module("numba")


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
    return Kernel(function, is_cached=False, forceinline=True)
