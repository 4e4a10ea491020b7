"""Paper 004, Figure 12: Prompt's elasticity (Algorithm 4) under a load that rises and falls, in simulated batches.

Batches are partitioned by Algorithms 2 and 3 for as many map and reduce tasks as Algorithm 4 has set. A batch takes the
longest map task and the longest reduce task, one after the other (Eq. 1), in proportion to the records of a block and
the partial results of a bucket: a map task emits one for each key of its block. They are scaled so that the first batch
is just below the threshold. The paper gives no value for d.
"""

from __future__ import annotations

import numpy as np

from millrace_jobs.partitioners.base import Hashes
from millrace_jobs.partitioners.prompt.partitioner import PromptPartitioner
from millrace_operator.scaling.shape import Range
from millrace_research.arena.policies.prompt import PromptElasticity
from millrace_research.papers.figures import PaperFigures, Run
from millrace_research.papers.placing import SEED, new_replica
from millrace_research.papers.reduce_buckets import allocate, reference_table
from millrace_research.papers.streams import synthetic

TASKS, MOST = 4, 64
"""Map and reduce tasks at the start, and the most of each."""
FIRST_W = 0.85
"""W of the first batch, in Algorithm 4's zone 2, between 80 and 90 %."""
RISING, STEADY, FALLING = 120, 40, 120
"""Batches in which the load rises to ``PEAK`` times the first, stays there, and falls back."""
PEAK = 3.0
RECORDS, KEYS = 20_000, 5_000
"""Records and distinct keys of the first batch."""
SCENARIOS = {"rate and keys": (True, True), "rate": (True, False), "keys": (False, True)}
"""Which of the data rate and the data distribution, the number of keys, changes."""
_D = 3


def run(figures: PaperFigures) -> None:
    """Run the scenarios of Figure 12."""
    for name, (rate, keys) in SCENARIOS.items():
        _scenario(figures, name, rate, keys)


def _loads() -> list[float]:
    up = np.linspace(1.0, PEAK, RISING)
    return [*up, *np.full(STEADY, PEAK), *up[::-1]]


def _scenario(figures: PaperFigures, name: str, rate: bool, keys: bool) -> None:
    limits = Range(1, MOST)
    elasticity = PromptElasticity(TASKS, TASKS, limits, limits, d=_D)
    tasks, seconds, history = (TASKS, TASKS), 0.0, []
    for number, load in enumerate(_loads()):
        batch = _batch(round(RECORDS * (load if rate else 1)), round(KEYS * (load if keys else 1)), number)
        work = _work(batch, *tasks)
        seconds = seconds or FIRST_W / work
        history.append((*tasks, work * seconds))
        tasks = elasticity.step(work * seconds, len(batch), len(np.unique(batch)))
    maps, reduces, utilization = (np.array(values) for values in zip(*history, strict=True))
    peak, last = slice(RISING, RISING + STEADY), len(history) - 1
    figures.add(
        Run("elasticity", name, "Prompt", TASKS),
        maps_at_peak=maps[peak].mean(),
        reduces_at_peak=reduces[peak].mean(),
        maps_at_end=maps[last],
        reduces_at_end=reduces[last],
        kept_up=(utilization <= 1).mean(),
        utilization_at_peak=utilization[peak].mean(),
    )


def _batch(records: int, keys: int, seed: int) -> Hashes:
    """Return a batch with exactly ``keys`` distinct keys: one record of each, and the others of Zipf(1)."""
    shares = np.arange(1, keys + 1, dtype=np.float64) ** -1.0
    drawn = np.random.default_rng(seed)
    more = drawn.choice(keys, records - keys, p=shares / shares.sum())
    return synthetic("", drawn.permutation(np.concatenate([np.arange(keys), more]))).keys


def _work(batch: Hashes, maps: int, reduces: int) -> float:
    """Return the records of the largest block plus the partial results of the largest bucket (Eq. 1)."""
    prompt = new_replica("Prompt", maps)
    assert isinstance(prompt, PromptPartitioner)
    prompt.accumulate(batch)
    plan = prompt.partition()
    buckets = np.zeros(reduces, np.int64)
    for task in range(maps):
        reference = reference_table(plan, task, shared=False)
        partials = np.ones(len(reference.keys), np.int64)
        np.add.at(buckets, allocate(reference, partials, reduces, task=task, seed=SEED), partials)
    return float(np.bincount(plan.ids, minlength=maps).max() + buckets.max())
