"""Paper 003, Figures 8 and 9b: the micro-batch model of section 3.4, with Prompt among the rivals.

A batch is 5,000 records. Combiners reduce within the batch, so every algorithm, hashing too, needs the reducers, which
merge the batch's partial results. As in a job, a partitioner's window is the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.placement_cost import PlacementCost
from millrace_research.papers.dalton_003 import (
    ALTERNATING,
    PHASE,
    SHIFT_PARALLELISM,
    parallelisms,
    shifts,
    steady_streams,
)
from millrace_research.papers.dalton_003_pace import SLIDE, reducers_of
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.placing import place, window_costs

DALTON = "dalton:fragmentation=batch"
IN_BATCHES = ("FLD", "cAM-2", "SH", "PK-2", "CM-2", "Prompt", DALTON)
HASHING, SPLITTING = ("FLD", "cAM-2"), ("SH", "PK-2", "CM-2")
_BATCHES, _SETTLED = 30, 10
"""Batches of each run, and those of them that do not count."""


def run(figures: PaperFigures) -> None:
    """Run the experiments on micro-batches."""
    for stream in steady_streams():
        batches = stream.head(_BATCHES * SLIDE).slides(SLIDE)
        for replicas in REPLICAS:
            for parallelism in parallelisms(replicas):
                for algorithm in IN_BATCHES:
                    paces = _paces(batches, algorithm, parallelism, replicas)
                    figures.add(
                        Run("batches", stream.name, algorithm, parallelism, replicas),
                        pace=float(np.mean(paces[_SETTLED:])),
                    )
    for name, phases in shifts().items():
        if name in ALTERNATING:
            batches = [batch for phase in phases[:2] for batch in phase.slides(SLIDE)]
            for algorithm in IN_BATCHES:
                for replicas in REPLICAS:
                    paces = _paces(batches, algorithm, SHIFT_PARALLELISM, replicas)
                    figures.add(
                        Run("batches, shifting", name, algorithm, SHIFT_PARALLELISM, replicas),
                        skewed_pace=float(np.mean(paces[PHASE:])),
                    )


def _paces(batches: Sequence[Hashes], algorithm: str, parallelism: int, replicas: int) -> list[float]:
    combiners = parallelism - reducers_of(parallelism)
    costs = window_costs(batches, place(algorithm, batches, combiners, replicas=replicas), combiners)
    return [_pace(cost, parallelism) for cost in costs]


def _pace(cost: PlacementCost, parallelism: int) -> float:
    """Return the speedup of a batch over a single combiner, as ``dalton_003_pace.pace`` does for a slide."""
    return cost.rows / max(cost.largest_load, cost.aggregation_cost / reducers_of(parallelism))
