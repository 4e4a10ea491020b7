"""The loads of workers by batch, as heat maps show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from millrace_jobs.page.history import RunSnapshot
from millrace_support.run_record import BatchFigures

HEAT_BATCHES = 48
"""Batches in the heat map."""

MAX_HEAT_MAPS = 4
"""Heat maps of a page, each of batches with the same number of workers."""


@dataclass(frozen=True)
class HeatMap:
    """Loads of workers by batch: ``ratios`` has the load over the mean of its batch, shape ``(batches, workers)``.

    With many workers, each load is the largest of ``size`` neighbors, load ``i`` beginning with worker ``i * size``.
    """

    title: str
    batches: tuple[int, ...]
    ratios: tuple[tuple[float, ...], ...]
    newest: tuple[int, ...]
    unit: str
    size: int = 1


def heat_maps(run: RunSnapshot, columns: int = HEAT_BATCHES) -> tuple[HeatMap, ...]:
    """Return a map for each number of workers in turn, the newest last; empty if the run has become native since."""
    loaded = [each for each in run.batches if sum(each.loads)]
    newest = [each for each in run.batches if each.rows][-3:]
    if not any(each in newest for each in loaded[-1:]):
        return ()
    phases = [list(phase) for _, phase in groupby(loaded[-columns:], lambda each: (len(each.loads), each.load_size))]
    is_join = run.newest is not None and run.newest.is_join
    return tuple(_heat_map(phase, is_join=is_join) for phase in phases[-MAX_HEAT_MAPS:])


def _heat_map(shown: Sequence[BatchFigures], *, is_join: bool) -> HeatMap:
    size = shown[-1].load_size
    title = "Rows and matches by task of the join" if is_join else "Records by worker"
    return HeatMap(
        title + (f", the largest of each {size} neighbors" if size > 1 else ""),
        tuple(each.batch for each in shown),
        tuple(tuple(load / each.mean_load for load in each.loads) for each in shown),
        shown[-1].loads,
        "rows and matches" if is_join else "records",
        size,
    )
