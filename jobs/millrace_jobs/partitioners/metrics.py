"""What a placement costs: the exact metrics of one block or window, the same for every algorithm.

Equations are those of paper 000 (Katsipoulakis et al., VLDB 2017). ``n`` is the number of workers, ``‖S‖``
the number of distinct keys of the window, ``‖L_w‖`` that of its records that went to worker ``w``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Workers


@dataclass(frozen=True)
class PlacementCost:
    """Figures of one block or window. Of an empty one, all are 0, but the replication factor is 1."""

    rows: int
    distinct_keys: int | None
    """‖S‖; None where only the workers' own counts are known."""
    load_imbalance: float
    """Eq. 1, in records: the largest load less the average one."""
    load_imbalance_ratio: float
    """The same as a fraction of the average: 0 is even, n - 1 is all records on one worker."""
    cardinality_imbalance: float
    """Eq. 6, in keys: the largest number of distinct keys on a worker less the average one."""
    cardinality_imbalance_ratio: float
    """The same as a fraction of the average."""
    aggregation_cost: int
    """Γ, Eq. 2 and 4, in keys: the sum over workers of ‖L_w‖. By Proposition 1, ‖S‖ ≤ Γ ≤ n‖S‖."""

    @property
    def replication_factor(self) -> float | None:
        """Γ/‖S‖: on how many workers a key is, on average; None where ‖S‖ is not known."""
        if self.distinct_keys is None:
            return None
        return self.aggregation_cost / self.distinct_keys if self.distinct_keys else 1.0


def placement_cost(ids: Workers, keys: NDArray[Any], workers: int) -> PlacementCost:
    """The cost of sending records with ``keys`` (hashes or codes) to workers ``ids``, both ``(rows,)``.

    Raises ValueError on shapes that differ and on an id outside ``range(workers)``.
    """
    if ids.shape != keys.shape or ids.ndim != 1:
        raise ValueError(f"ids have shape {ids.shape} and keys {keys.shape}; both must be (rows,)")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < workers:
        raise ValueError(f"worker ids go from {ids.min()} to {ids.max()}, outside 0 to {workers - 1}")
    distinct, codes = np.unique(keys, return_inverse=True)
    placed = np.unique(codes * workers + ids)  # each (key, worker) that occurs, once
    return cost_of_counts(
        np.bincount(ids, minlength=workers),
        np.bincount(placed % workers, minlength=workers),
        distinct_keys=len(distinct),
    )


def cost_of_counts(
    rows: NDArray[np.integer[Any]], keys: NDArray[np.integer[Any]], *, distinct_keys: int | None = None
) -> PlacementCost:
    """The cost from what each worker counts itself: ``rows`` and distinct ``keys``, both of shape ``(n,)``.

    ``distinct_keys`` is ‖S‖, where known. Raises ValueError where the counts cannot be: different shapes, no
    worker, or Γ outside the bounds of Proposition 1.
    """
    if rows.shape != keys.shape or rows.ndim != 1 or not len(rows):
        raise ValueError(f"rows have shape {rows.shape} and keys {keys.shape}; both must be (workers,)")
    cost = int(keys.sum())
    if distinct_keys is not None and not distinct_keys <= cost <= len(keys) * distinct_keys:
        raise ValueError(
            f"{cost} keys on {len(keys)} workers cannot come from {distinct_keys} distinct ones: "
            f"their number is between {distinct_keys} and {len(keys) * distinct_keys}"
        )
    load, load_ratio = _imbalance(rows)
    cardinality, cardinality_ratio = _imbalance(keys)
    return PlacementCost(int(rows.sum()), distinct_keys, load, load_ratio, cardinality, cardinality_ratio, cost)


def _imbalance(counts: NDArray[np.integer[Any]]) -> tuple[float, float]:
    """The largest count less the average, and that as a fraction of the average (0 when there is nothing)."""
    average = float(counts.mean())
    imbalance = float(counts.max()) - average
    return imbalance, imbalance / average if average else 0.0
