"""Placement of a stream by an algorithm, under its name in the papers, and the cost of a placement per window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from millrace_jobs.partitioners.base import Hashes, Partitioner, Workers
from millrace_jobs.partitioners.placement_cost import PlacementCost
from millrace_research.comparison.contenders import ComparisonSetting, parse_contender
from millrace_research.comparison.replaying import PlacedStream, key_codes, replay
from millrace_research.comparison.stream import Slides

SEED = 1

ALGORITHMS = {
    "SH": "shuffle",
    "FLD": "hash",
    "PK-2": "pkg:slides=0",
    "PK-5": "pkg:choices=5:slides=0",
    "CM-2": "cm",
    "CM-2-H": "cm:cardinality=hll",
    "AM-2": "am",
    "AM-2-H": "am:cardinality=hll",
    "AM-5": "am:choices=5",
    "cAM-2": "cam",
    "cAM-5": "cam:choices=5",
    "LM-2": "lm",
    "LM-2-H": "lm:cardinality=hll",
    "D-Choices": "dchoices",
    "W-Choices": "wchoices",
    "DAGreedy": "dagreedy",
    "Dalton": "dalton:fragmentation=window",
    "Prompt": "prompt",
}
"""Algorithms as this project names them, by their names in the papers."""


def place(
    algorithm: str,
    slides: Sequence[Hashes],
    workers: int,
    *,
    replicas: int = 1,
    slides_per_window: int = 1,
    cooperative: bool = True,
) -> list[Workers]:
    """Return the workers of each slide's records. Replicas get contiguous parts of each slide, equally long.

    Replicas of a cooperative algorithm exchange their knowledge after each slide, unless ``cooperative`` is False.
    """
    contender = parse_contender(ALGORITHMS.get(algorithm, algorithm), slides_per_window)
    setting = ComparisonSetting(workers, replicas, SEED, slides_per_window)
    lengths = [len(slide) for slide in slides]
    cuts = Slides(np.arange(len(slides)), np.cumsum([0, *lengths]), 0, 0)
    runs = replay(
        contender.replicas(setting),
        np.concatenate(slides),
        cuts,
        slides_per_window=slides_per_window,
        copies=contender.replicas(setting) if cooperative and contender.is_cooperative else (),
        states=False,
    )
    return [run.ids for run in runs]


def new_replica(algorithm: str, workers: int) -> Partitioner:
    """Return one replica without history."""
    return parse_contender(ALGORITHMS.get(algorithm, algorithm), 1).replicas(ComparisonSetting(workers, 1, SEED, 1))[0]


@dataclass(frozen=True)
class MeanCost:
    """Costs of windows, averaged over the windows unless a field says otherwise."""

    imbalance: float
    """Load imbalance as a fraction of the average load."""
    cardinality_imbalance: float
    """Cardinality imbalance as a fraction of the average cardinality."""
    replication: float
    """Replication factor, Γ/‖S‖."""
    worst_imbalance: float
    """The largest load imbalance of a window, in records."""
    hybrid_imbalance: float
    """Hybrid imbalance, paper 000's Eq. 10 with p = 1/2."""
    aggregation_cost: float
    """Aggregation cost Γ, in keys."""
    speedup: float
    """Records over the largest load: the best possible speedup of the partial evaluation over one worker."""


def mean_cost(costs: Iterable[PlacementCost]) -> MeanCost:
    """Return the averages over windows, each counting once."""
    costs = list(costs)
    return MeanCost(
        imbalance=mean(cost.load_imbalance_ratio for cost in costs),
        cardinality_imbalance=mean(cost.cardinality_imbalance_ratio for cost in costs),
        replication=mean(cost.replication_factor or 1.0 for cost in costs),
        worst_imbalance=max(cost.load_imbalance for cost in costs),
        hybrid_imbalance=mean(cost.hybrid_imbalance for cost in costs),
        aggregation_cost=mean(cost.aggregation_cost for cost in costs),
        speedup=mean(cost.rows / cost.largest_load for cost in costs),
    )


def window_costs(windows: Sequence[Hashes], placed: Sequence[Workers], workers: int) -> list[PlacementCost]:
    """Return the cost of each window. A window is one slide."""
    costs = []
    for window, ids in zip(windows, placed, strict=True):
        codes, keys = key_codes(window)
        costs.append(PlacedStream(ids, codes, keys, workers).total())
    return costs
