"""Moved keys: how many keys change workers from one window to the next, or after a rescale.

A key that is in both placements has moved if its set of workers differs. Keys that are in only one placement are not
counted, because nothing has to follow a key to workers if it was nowhere before. This measure is strict for an
algorithm that splits keys: a key that gains or loses a single worker has moved too.
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
    """Number of ``keys`` in both placements, or in a sample of them, and how many of these ``moved``."""

    keys: int
    moved: int

    @property
    def share(self) -> float:
        """Moved keys as a fraction of the keys in both placements; 0 if there are no such keys."""
        return self.moved / self.keys if self.keys else 0.0


def moved_keys(before: Placement, after: Placement) -> MovedKeys:
    """Count the moved keys exactly. The placements may have any lengths and any workers.

    Raises ValueError if ids and keys differ in shape.
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
    """Count the keys that ``partitioner`` moves when it is resized to ``workers`` workers between two slides.

    ``partitioner`` places the records ``keys`` before the resize, in a slide that then ends, and again after the
    resize. An algorithm that forgets or learns with its slides moves keys even if the number of workers stays the same.
    ``others`` are further replicas with records of their own; a key is then wherever any replica places it. The state
    of every replica is restored at the end.
    """
    replicas = [(partitioner, keys), *others]
    before, after = zip(*(_around_resize(replica, part, workers) for replica, part in replicas), strict=True)
    stream = np.concatenate([part for _, part in replicas])
    return moved_keys((np.concatenate(before), stream), (np.concatenate(after), stream))


def _around_resize(partitioner: Partitioner, keys: Hashes, workers: int) -> tuple[Workers, Workers]:
    """Return where the records go before and after the resize."""
    state = partitioner.save()
    try:
        before = partitioner.route(keys)
        partitioner.advance()
        partitioner.resize(workers)
        return before, partitioner.route(keys)
    finally:
        partitioner.restore(state)
