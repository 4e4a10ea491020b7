"""Moved keys: how many keys go to other workers than before, from one window to the next or after a rescale.

A key of both placements has moved if its set of workers is another one. Keys that only one of them has are not
counted: where a key was never, nothing has to follow it. For an algorithm that splits keys this is a strict
measure, since a key that has found one more worker, or one less, has moved too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Hashes, Partitioner, Workers

Placement = tuple[Workers, NDArray[Any]]
"""Worker ids and keys (hashes or codes) of the same records, both ``(rows,)``."""


@dataclass(frozen=True)
class MovedKeys:
    """Of ``keys`` that are in both placements (or in a sample of these), ``moved`` have moved."""

    keys: int
    moved: int

    @property
    def share(self) -> float:
        """Moved keys as a fraction of those in both; 0 when there are none."""
        return self.moved / self.keys if self.keys else 0.0


def moved_keys(before: Placement, after: Placement) -> MovedKeys:
    """The keys that have moved, exactly. The placements may be of any lengths and over any workers.

    Raises ValueError where ids and keys differ in shape.
    """
    for ids, keys in (before, after):
        if ids.shape != keys.shape or ids.ndim != 1:
            raise ValueError(f"ids have shape {ids.shape} and keys {keys.shape}; both must be (rows,)")
    _, codes = np.unique(np.concatenate([before[1], after[1]]), return_inverse=True)
    ids = np.concatenate([before[0], after[0]]).astype(np.int64)
    width = int(ids.max(initial=0)) + 1
    placed = codes * width + ids
    old, new = np.unique(placed[: len(before[0])]), np.unique(placed[len(before[0]) :])
    common = np.intersect1d(old // width, new // width)
    changed = np.unique(np.setxor1d(old, new, assume_unique=True) // width)
    return MovedKeys(len(common), len(np.intersect1d(common, changed, assume_unique=True)))


def moved_on_resize(
    partitioner: Partitioner, keys: Hashes, workers: int, others: Sequence[tuple[Partitioner, Hashes]] = ()
) -> MovedKeys:
    """The keys that ``partitioner`` moves when it is resized to ``workers`` workers between two slides.

    The records ``keys`` are placed by it as it is, in a slide that then ends, and once more after the resize; an
    algorithm that forgets or learns with its slides moves keys even when the number of workers stays. ``others``
    are replicas of it with records of their own; a key is then where any of them places it. All are left as they
    were.
    """
    replicas = [(partitioner, keys), *others]
    before, after = zip(*(_around_resize(replica, part, workers) for replica, part in replicas), strict=True)
    stream = np.concatenate([part for _, part in replicas])
    return moved_keys((np.concatenate(before), stream), (np.concatenate(after), stream))


def _around_resize(partitioner: Partitioner, keys: Hashes, workers: int) -> tuple[Workers, Workers]:
    """Where the records go before the resize, and after it."""
    state = partitioner.save()
    try:
        before = partitioner.route(keys)
        partitioner.advance()
        partitioner.resize(workers)
        return before, partitioner.route(keys)
    finally:
        partitioner.restore(state)
