"""The pace of a placement: the model of a job by which paper 003's throughputs are compared.

The paper measures the throughput of Flink and Storm jobs. A placement alone gives the reward, computed alike for every
algorithm (``slide_figures``), and a bound on the throughput, the *pace*.

The reward is R = -(p1 CI + p2 CA) with p1 = p2 = 1/2. CI (Eq. 3) compares the load of the record's worker with the
average. CA (Eq. 4) is the share of the workers that its key is on. Both cover the sliding window, including the record.

Resources are divided as in section 5.1: of a parallelism of n, an algorithm that needs a final aggregation gives n/8 to
reducers and the rest to combiners, and one that does not has n combiners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_research.comparison.replaying import key_codes
from millrace_research.papers.placing import place

SLIDE = 5_000
"""Records of a slide of one second."""
SLIDES_PER_WINDOW = 60
COMPARED = ("FLD", "cAM-2", "SH", "PK-2", "CM-2", "DAGreedy", "Dalton")
NEVER = "Dalton, never syncing"
"""Replicas of Dalton that exchange nothing."""


def forwards(algorithm: str, replicas: int) -> bool:
    """Whether combiners may send the results of keys on a single worker past the reducers (section 4.2).

    Hashing agrees by itself. A single partitioner knows which keys it split. Of several, only those of Dalton do, since
    they synchronize in each slide.
    """
    if algorithm == "FLD" or (algorithm == "Dalton" and replicas > 1):
        return True
    return replicas == 1 and algorithm in ("cAM-2", "DAGreedy", "Dalton", NEVER)


def combiners_of(algorithm: str, parallelism: int, replicas: int) -> int:
    """Return the combiners of an algorithm: all of the parallelism, or seven eighths if it needs reducers."""
    aggregates = not (algorithm == "FLD" or (algorithm == "cAM-2" and replicas == 1))
    return parallelism - reducers_of(parallelism) if aggregates else parallelism


def reducers_of(parallelism: int) -> int:
    """Return the reducers that section 5.1 gives to a parallelism."""
    return max(parallelism // 8, 1)


Series = NDArray[np.float64]
"""One figure per slide, of shape ``(slides,)``."""


class SlideFigures(NamedTuple):
    """Figures by slide. All but the reward cover the window that ends with the slide."""

    reward: Series
    """Mean reward over the records of the slide."""
    imbalance: Series
    """Load imbalance (Eq. 1), as a fraction of the average load."""
    keys: Series
    """Number of distinct keys, ‖S‖."""
    partials: Series
    """Γ: partial results, one per key and worker."""
    split: Series
    """Partial results of keys on more than one worker, which a reducer has to merge."""

    def since(self, slide: int) -> SlideFigures:
        """Return the figures from one slide on."""
        return SlideFigures(*(series[slide:] for series in self))


def pace(found: SlideFigures, rows: int, parallelism: int, combiners: int, *, forwarding: bool) -> Series:
    """Return the best possible speedup of combiners and reducers over a single combiner, by slide of ``rows`` records.

    In each slide, the slowest combiner processes its part of the records. Meanwhile the reducers merge the window's
    partial results. With ``forwarding``, those of keys on a single worker go past them. A record and a partial result
    take equally long.
    """
    merged = found.split if forwarding else found.partials
    return rows / np.maximum((1 + found.imbalance) * rows / combiners, merged / reducers_of(parallelism))


def place_slides(
    algorithm: str, slides: Sequence[Hashes], workers: int, slides_per_window: int, replicas: int = 1
) -> list[Workers]:
    """Place slides, without a new window for cAM and CM, which would put keys on two workers in sliding windows.

    Of several replicas only those of Dalton exchange what they know: the paper's rivals have no protocol for it.
    """
    window = len(slides) if algorithm in ("cAM-2", "CM-2") else slides_per_window
    name = "Dalton" if algorithm == NEVER else algorithm
    cooperative = algorithm == "Dalton"
    return place(name, slides, workers, replicas=replicas, slides_per_window=window, cooperative=cooperative)


def slide_figures(
    slides: Sequence[Hashes], placed: Sequence[Workers], workers: int, slides_per_window: int
) -> SlideFigures:
    """Return the figures of a placed stream."""
    codes, keys = key_codes(np.concatenate(slides))
    edges = np.cumsum([0, *(len(slide) for slide in slides)])
    return SlideFigures(*_slide_figures(codes, np.concatenate(placed), edges, keys, workers, slides_per_window))


@kernel
def _slide_figures(
    codes: NDArray[np.int64],
    ids: Workers,
    edges: NDArray[np.int64],
    keys: int,
    workers: int,
    slides_per_window: int,
) -> NDArray[np.float64]:
    slides = len(edges) - 1
    figures = np.zeros((5, slides))
    records = np.zeros((keys, workers), np.int32)  # in the window, by key and worker
    places = np.zeros(keys, np.int64)  # workers that a key is on
    loads = np.zeros(workers, np.int64)
    oldest = 0
    for slide in range(slides):
        while oldest < edges[max(slide + 1 - slides_per_window, 0)]:
            key, worker = codes[oldest], ids[oldest]
            records[key, worker] -= 1
            places[key] -= records[key, worker] == 0
            loads[worker] -= 1
            oldest += 1
        reward = 0.0
        for row in range(edges[slide], edges[slide + 1]):
            key, worker = codes[row], ids[row]
            places[key] += records[key, worker] == 0
            records[key, worker] += 1
            loads[worker] += 1
            average = (row + 1 - oldest) / workers
            unevenness = (loads[worker] - average) / max(float(loads[worker]), average)
            reward -= 0.5 * unevenness + 0.5 * places[key] / workers
        total = edges[slide + 1] - oldest
        figures[0, slide] = reward / max(edges[slide + 1] - edges[slide], 1)
        figures[1, slide] = loads.max() * workers / total - 1.0 if total else 0.0
        figures[2, slide] = np.count_nonzero(places)
        figures[3, slide] = places.sum()
        figures[4, slide] = places[places > 1].sum()
    return figures
