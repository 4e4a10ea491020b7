"""What a placement costs: the exact metrics of one block or window, the same for every algorithm.

Equations are those of paper 000 (Katsipoulakis et al., VLDB 2017) and of paper 004 (Abdelhamid et al., SIGMOD
2020), whose blocks are the workers here. ``n`` is the number of workers, ``‖S‖`` the number of distinct keys of
the window, ``L_w`` the records that went to worker ``w`` and ``‖L_w‖`` the number of their distinct keys.
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

Loads = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]
"""Shape ``(n,)``: one load per worker, in records, keys, or scaled."""


@dataclass(frozen=True)
class PartitioningImbalance:
    """Paper 004's figures of a micro-batch's blocks, or means of such figures; smaller is better.

    As the paper defines them, their units differ: records, keys and a ratio. ``relative_to`` gives the form in
    which the paper compares algorithms (Figure 10).
    """

    bsi: float
    """Block Size-Imbalance, Eq. 2, in records: the same as paper 000's imbalance."""
    bci: float
    """Block Cardinality-Imbalance, Eq. 4, in keys: the same as paper 000's cardinality imbalance."""
    ksr: float
    """Key Split Ratio: key fragments per key, as Eq. 5 has it, where the prose has its inverse. 1: none is split."""

    @property
    def mpi(self) -> float:
        """Micro-batch Partitioning-Imbalance, Eq. 6 with p1 = p2 = p3 = 1/3, as in the paper's experiments.

        Of the plain figures it is a sum of unlike units, which large blocks let BSI dominate.
        """
        return (self.bsi + self.bci + self.ksr) / 3

    def relative_to(self, hashing: PartitioningImbalance, shuffle: PartitioningImbalance) -> PartitioningImbalance:
        """Each figure as a fraction of the technique's that does nothing for it; NaN where that one is 0.

        BSI relative to hashing and BCI to shuffle, as in Figure 10. The figure has no KSR; here it is relative
        to shuffle too, so that the MPI of relative figures weighs three fractions alike.
        """
        return PartitioningImbalance(
            _fraction(self.bsi, hashing.bsi), _fraction(self.bci, shuffle.bci), _fraction(self.ksr, shuffle.ksr)
        )


@dataclass(frozen=True)
class PlacementCost:
    """Figures of one block or window. Of an empty one, all are 0, but the replication factor is 1."""

    workers: int
    rows: int
    distinct_keys: int | None
    """‖S‖; None where only the workers' own counts are known."""
    largest_load: int
    """Records on the worker that has the most."""
    load_imbalance: float
    """Paper 000, Eq. 1, in records: the largest load less the average one."""
    load_imbalance_ratio: float
    """The same as a fraction of the average: 0 is even, n - 1 is all records on one worker."""
    cardinality_imbalance: float
    """Paper 000, Eq. 6, in keys: the largest number of distinct keys on a worker less the average one."""
    cardinality_imbalance_ratio: float
    """The same as a fraction of the average."""
    hybrid_imbalance: float
    """Paper 000, Eq. 10, with p = 1/2 as in section 5.1: see ``hybrid_imbalance``."""
    aggregation_cost: int
    """Γ, paper 000, Eq. 2 and 4, in keys: the sum over workers of ‖L_w‖."""

    @property
    def aggregation_cost_bounds(self) -> tuple[int, int] | None:
        """Paper 000, Proposition 1: ‖S‖ ≤ Γ ≤ n‖S‖; None where ‖S‖ is not known."""
        return None if self.distinct_keys is None else (self.distinct_keys, self.workers * self.distinct_keys)

    @property
    def replication_factor(self) -> float | None:
        """Γ/‖S‖: on how many workers a key is, on average; None where ‖S‖ is not known."""
        if self.distinct_keys is None:
            return None
        return self.aggregation_cost / self.distinct_keys if self.distinct_keys else 1.0

    @property
    def pays(self) -> bool:
        """Paper 000, Eq. 3: whether Γ ≤ max_w |L_w|, so that aggregation does not outweigh the partial evaluation."""
        return self.aggregation_cost <= self.largest_load

    @property
    def partitioning_imbalance(self) -> PartitioningImbalance | None:
        """Paper 004's BSI, BCI, KSR and MPI; None where ‖S‖ is not known."""
        if self.replication_factor is None:
            return None
        return PartitioningImbalance(self.load_imbalance, self.cardinality_imbalance, self.replication_factor)


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


def cost_of_counts(rows: Counts, keys: Counts, *, distinct_keys: int | None = None) -> PlacementCost:
    """The cost from what each worker counts itself: ``rows`` and distinct ``keys``.

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


def imbalance(loads: Loads) -> tuple[float, float]:
    """The largest load less the average, and that as a fraction of the average (0 when there is nothing).

    Of records or keys per worker it is paper 000's Eq. 1 or 6; of the sizes of a stage's reduce buckets, paper
    004's Eq. 3. ``loads`` has one element or more.
    """
    average = float(loads.mean())
    difference = float(loads.max()) - average
    return difference, difference / average if average else 0.0


def hybrid_imbalance(rows: Counts, keys: Counts, p: float = 0.5) -> float:
    """Paper 000, Eq. 7 to 10: max H - avg H, where H = p·rows' + (1 - p)·keys', each scaled to between 0 and 1.

    Eq. 7 and 8 divide 0 by 0 where all workers have the same count; it then tells none apart and is taken as 0.
    """
    return imbalance(p * _scaled(rows) + (1 - p) * _scaled(keys))[0]


def _scaled(counts: Counts) -> NDArray[Any]:
    least, most = int(counts.min()), int(counts.max())
    return (counts - least) / (most - least) if most > least else np.zeros(len(counts))


def _fraction(figure: float, reference: float) -> float:
    return figure / reference if reference else math.nan
