"""Time of a scaling decision: a search among about a thousand plans for a job with 50 stages, and what weighing adds.

python -m bench.scaling.decision_time
"""

from __future__ import annotations

import time

import numpy as np

from millrace_operator.scaling.batch_time.batch_model import BatchLoad, BatchModel
from millrace_operator.scaling.batch_time.partials import ObservedPartials, Partials
from millrace_operator.scaling.batch_time.stage_work import COMBINE, MERGE
from millrace_operator.scaling.decision.release import spared
from millrace_operator.scaling.decision.search import Need, Search
from millrace_operator.scaling.decision.steps import RELEASES
from millrace_operator.scaling.shape import Bounds, Range, Shape

STAGES, TIMES = 50, 30
BOUNDS = Bounds(Range(1, 40), Range(1, 2000), Range(1, 64), executor_cores=4, replica_cores=1.0)
PRESENT = Shape(10, 150, 50)


def model() -> BatchModel:
    """Return a model of a job with ``STAGES`` stages, whose costs are as uncertain as after a few batches."""
    stages = (*[COMBINE] * (STAGES - 1), MERGE)
    rng = np.random.default_rng(0)
    costs = rng.uniform(0.5, 1.5, (STAGES, 4)) * [1e-3, 1e-7, 1e-6, 1e-7]
    return BatchModel(
        stages=stages,
        costs=costs,
        fixed=0.2,
        schedule=1e-4,
        contention=0.01,
        spread=rng.normal(0, 1e-5, (3 + 4 * STAGES, 13)),
        scatter=0.05,
        dedicated=1e-5,
        executor_cores=BOUNDS.executor_cores,
        state_partitions=64,
        partials=Partials(ObservedPartials(1e6, 60, 50_000.0), filled=100.0, bend=1.0, by_tasks=0.0),
    )


def main() -> None:
    """Print the median and the longest processor time."""
    job, need = model(), Need(BatchLoad(2e6, 2.0), 0.9, 0.9, 0.5)
    rates = np.random.default_rng(0).uniform(0.5e6, 1.5e6, 1080)  # three hours
    seconds, weighing = [], []
    found = Search(job, BOUNDS, PRESENT, Range(1, 40), need)  # for warming up
    for _ in range(TIMES):
        since = time.process_time()
        found = Search(job, BOUNDS, PRESENT, Range(1, 40), need)
        found.cheapest(found.fits)
        searched = time.process_time()
        for plan in range(RELEASES):
            spared(rates, 10.0, found.capacity(plan, 0.9, 1.5e6), 120.0)
        seconds.append(searched - since)
        weighing.append(time.process_time() - searched)
    for name, each in ((f"{len(found.shapes)} shapes, {STAGES} stages", seconds), (f"{RELEASES} releases", weighing)):
        print(f"{name}: {np.median(each) * 1e3:.1f} ms in the median, {max(each) * 1e3:.1f} ms at most")


if __name__ == "__main__":
    main()
