"""Paper 003's figures of a placement by slide, computed alike for every algorithm.

The reward is R = -(p1 CI + p2 CA) with p1 = p2 = 1/2. CI (Eq. 3) compares the load of the record's worker with the
average. CA (Eq. 4) is the share of the workers that its key is on. Both cover the sliding window, including the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.benchmark.replaying import key_codes
from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.partitioners.base import Hashes, Workers

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
