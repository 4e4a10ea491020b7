"""Exact metrics of the placement of one block or window, the same for every algorithm: its cost, and moved keys.

Equation numbers refer to paper 000 (Katsipoulakis et al., VLDB 2017) and paper 004 (Abdelhamid et al., SIGMOD 2020),
whose blocks are the workers here. ``n`` is the number of workers, ``‖S‖`` the number of distinct keys of the window,
``L_w`` the records that went to worker ``w`` and ``‖L_w‖`` the number of their distinct keys.

Moved keys change workers from one window to the next, or after a rescale. A key that is in both placements has moved if
its set of workers differs. Keys that are in only one placement are not counted, because nothing has to follow a key to
workers if it was nowhere before. This measure is strict for an algorithm that splits keys: a key that gains or loses a
single worker has moved too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Workers

Counts = NDArray[np.integer[Any]]
"""Shape ``(n,)``: one count per worker."""


@dataclass(frozen=True)
class PartitioningImbalance:
    """Paper 004's imbalance figures for the blocks of a micro-batch, or means of them; smaller is better.

    As in the paper, the figures have different units: records, keys and a ratio. ``relative_to`` returns the form in
    which the paper compares algorithms (Figure 10).
    """

    bsi: float
    """Block Size-Imbalance, Eq. 2, in records: the same as paper 000's load imbalance."""
    bci: float
    """Block Cardinality-Imbalance, Eq. 4, in keys: the same as paper 000's cardinality imbalance."""
    ksr: float
    """Key Split Ratio: key fragments per key, as in Eq. 5 (the prose has the inverse). 1 means that no key is split."""

    @property
    def mpi(self) -> float:
        """Micro-batch Partitioning-Imbalance, Eq. 6 with p1 = p2 = p3 = 1/3, as in the paper's experiments.

        For the plain figures it adds different units, so BSI dominates it when blocks are large.
        """
        return (self.bsi + self.bci + self.ksr) / 3

    def relative_to(self, hashing: PartitioningImbalance, shuffle: PartitioningImbalance) -> PartitioningImbalance:
        """Return each figure as a fraction of a baseline's figure; NaN if the baseline's figure is 0.

        The baseline is the technique that does nothing for the figure: hashing for BSI and shuffle for BCI, as in
        Figure 10. The paper's Figure 10 has no KSR; here it is relative to shuffle too, so that the MPI of relative
        figures gives its three fractions the same weight.
        """
        return PartitioningImbalance(
            _fraction(self.bsi, hashing.bsi), _fraction(self.bci, shuffle.bci), _fraction(self.ksr, shuffle.ksr)
        )


@dataclass(frozen=True)
class PlacementCost:
    """Cost figures of one block or window. If it is empty, all are 0, except the replication factor, which is 1."""

    workers: int
    rows: int
    distinct_keys: int | None
    """‖S‖, or None if only the workers' own counts are known."""
    largest_load: int
    """Records on the most loaded worker."""
    load_imbalance: float
    """Load imbalance (paper 000, Eq. 1), in records: the largest load less the average."""
    load_imbalance_ratio: float
    """Load imbalance as a fraction of the average: 0 is even, n - 1 means that all records are on one worker."""
    cardinality_imbalance: float
    """Cardinality imbalance (paper 000, Eq. 6), in keys: the most distinct keys on a worker less the average."""
    cardinality_imbalance_ratio: float
    """Cardinality imbalance as a fraction of the average."""
    hybrid_imbalance: float
    """Hybrid imbalance (paper 000, Eq. 10), with p = 1/2 as in section 5.1; see the function ``hybrid_imbalance``."""
    aggregation_cost: int
    """Aggregation cost Γ (paper 000, Eq. 2 and 4), in keys: the sum over workers of ‖L_w‖."""

    @property
    def aggregation_cost_bounds(self) -> tuple[int, int] | None:
        """Bounds of Γ (paper 000, Proposition 1), ‖S‖ ≤ Γ ≤ n‖S‖; None if ‖S‖ is not known."""
        return None if self.distinct_keys is None else (self.distinct_keys, self.workers * self.distinct_keys)

    @property
    def replication_factor(self) -> float | None:
        """Average number of workers that a key is on, Γ/‖S‖; None if ‖S‖ is not known."""
        if self.distinct_keys is None:
            return None
        return self.aggregation_cost / self.distinct_keys if self.distinct_keys else 1.0

    @property
    def pays(self) -> bool:
        """Whether aggregation does not outweigh the partial evaluation, Γ ≤ max_w |L_w| (paper 000, Eq. 3)."""
        return self.aggregation_cost <= self.largest_load

    @property
    def partitioning_imbalance(self) -> PartitioningImbalance | None:
        """Paper 004's BSI, BCI, KSR and MPI; None if ‖S‖ is not known."""
        if self.replication_factor is None:
            return None
        return PartitioningImbalance(self.load_imbalance, self.cardinality_imbalance, self.replication_factor)


def cost_of_counts(rows: Counts, keys: Counts, *, distinct_keys: int | None = None) -> PlacementCost:
    """Return the cost from what each worker counts itself: ``rows`` and distinct ``keys``.

    ``distinct_keys`` is ‖S‖, if known. Raises ValueError on impossible counts: different shapes, no worker, or Γ
    outside the bounds of Proposition 1.
    """
    if rows.shape != keys.shape or rows.ndim != 1 or not len(rows):
        raise ValueError(f"rows have shape {rows.shape} and keys {keys.shape}; both must be (workers,)")
    cost = int(keys.sum())
    if distinct_keys is not None and not distinct_keys <= cost <= len(keys) * distinct_keys:
        raise ValueError(
            f"{cost} keys on {len(keys)} workers cannot come from {distinct_keys} distinct ones: "
            f"their number is between {distinct_keys} and {len(keys) * distinct_keys}"
        )
    load, load_ratio = imbalance(rows)
    cardinality, cardinality_ratio = imbalance(keys)
    return PlacementCost(
        workers=len(rows),
        rows=int(rows.sum()),
        distinct_keys=distinct_keys,
        largest_load=int(rows.max()),
        load_imbalance=load,
        load_imbalance_ratio=load_ratio,
        cardinality_imbalance=cardinality,
        cardinality_imbalance_ratio=cardinality_ratio,
        hybrid_imbalance=hybrid_imbalance(rows, keys),
        aggregation_cost=cost,
    )


def imbalance(loads: Counts | NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Return the largest load less the average, and that as a fraction of the average (0 if the average is 0).

    For records or keys per worker this is paper 000's Eq. 1 or 6; for the sizes of a stage's reduce buckets, paper
    004's Eq. 3. ``loads`` has at least one element, in records, keys, or scaled.
    """
    average = float(loads.mean())
    difference = float(loads.max()) - average
    return difference, difference / average if average else 0.0


def hybrid_imbalance(rows: Counts, keys: Counts, p: float = 0.5) -> float:
    """Return max H - avg H (paper 000, Eq. 7 to 10), where H = p·rows' + (1 - p)·keys', each scaled to between 0 and 1.

    Eq. 7 and 8 divide 0 by 0 if all workers have the same count; such a count is taken as 0, since it sets no worker
    apart.
    """
    return imbalance(p * _scaled(rows) + (1 - p) * _scaled(keys))[0]


def _scaled(counts: Counts) -> NDArray[Any]:
    least, most = int(counts.min()), int(counts.max())
    return (counts - least) / (most - least) if most > least else np.zeros(len(counts))


def _fraction(figure: float, reference: float) -> float:
    return figure / reference if reference else math.nan


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
