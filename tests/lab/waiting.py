"""Waits for what happens elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(holds: Callable[[], Any], what: str = "it holds", seconds: float = 240.0) -> Any:
    """Look twice a second until it holds; what it then gave.

    Raises:
        AssertionError: it still does not after so many ``seconds``, or ``holds`` itself says so.
    """
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"after {seconds:.0f} s not yet: {what}"
        time.sleep(0.5)
    return found
