"""Wait for a condition elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(holds: Callable[[], Any], what: str | Callable[[], str] = "it holds", seconds: float = 480.0) -> Any:
    """Check twice a second until the condition holds, and return its value.

    A function as ``what`` is called only if the condition does not hold in time, so it can tell what was there then.

    Raises:
        AssertionError: if it does not hold after ``seconds``, or if ``holds`` raises it.
    """
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"after {seconds:.0f} s not yet: {what if isinstance(what, str) else what()}")
        time.sleep(0.5)
    return found
