"""Inlining of small functions into the kernels that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` into each kernel that calls it; for a few steps on arrays that are done per record.

    A call from one kernel to another counts references to the arrays that it passes, atomically, which can take longer
    than the steps themselves. Only the callers are cached on disk: called from Python, the function is compiled again
    in every process.
    """
    return cast("Callable[P, R]", njit(nogil=True, error_model="numpy", forceinline=True)(function))
