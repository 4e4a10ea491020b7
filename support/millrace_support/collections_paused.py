"""A pause of Python's garbage collector while many objects are made that live on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collections_paused() -> Iterator[None]:
    """Make objects without garbage collections: messages that were fetched, or what modules define.

    The collector runs each time that so many more objects exist, and looks through the new ones and at times through
    all that the process has loaded.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
