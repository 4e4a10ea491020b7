"""Paper 003, Figure 9c: correlation clustering, whose work is quadratic, while the stream shifts.

A combiner clusters the records of a key by comparing each new one with those of the key that it has in the window, as
VOTE does. A reducer compares the partial results of a key in pairs, as GREEDY does with clusters. A comparison costs
the same in both; the paper gives no such figures. A slide is 20 s, a window 60 s, so a window has three slides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.partitioners.base import Workers
from millrace_research.comparison.replaying import key_codes
from millrace_research.papers.dalton_003 import ALTERNATING, PHASE, SHIFT_PARALLELISM, shifts
from millrace_research.papers.dalton_003_pace import COMPARED, SLIDE, combiners_of, forwards, place_slides, reducers_of
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run

WINDOW = 3
"""Slides per window."""


def run(figures: PaperFigures) -> None:
    """Run the experiment with quadratic work."""
    for name, phases in shifts().items():
        if name not in ALTERNATING:
            continue
        slides = [slide for phase in phases[:2] for slide in phase.slides(SLIDE)]
        codes, keys = key_codes(np.concatenate(slides))
        for algorithm in COMPARED:
            for replicas in REPLICAS:
                combiners = combiners_of(algorithm, SHIFT_PARALLELISM, replicas)
                ids = np.concatenate(place_slides(algorithm, slides, combiners, WINDOW, replicas))
                alone, slowest, merged, split = comparisons(codes, ids, keys, combiners, SLIDE, WINDOW)
                reduced = (split if forwards(algorithm, replicas) else merged) / reducers_of(SHIFT_PARALLELISM)
                paces = alone / np.maximum(slowest, reduced)
                figures.add(
                    Run("clusters", name, algorithm, SHIFT_PARALLELISM, replicas), skewed_pace=paces[PHASE:].mean()
                )


@kernel
def comparisons(
    codes: NDArray[np.int64], ids: Workers, keys: int, workers: int, slide: int, slides_per_window: int
) -> NDArray[np.float64]:
    """Return the comparisons of each slide of ``slide`` records, shape ``(4, slides)``.

    They are those of a single combiner; of the busiest of ``workers`` combiners; of all partial results of the window,
    each with all of its key; and of those of keys on more than one worker.
    """
    slides = len(codes) // slide
    found = np.zeros((4, slides))
    records = np.zeros((keys, workers), np.int32)  # in the window, by key and worker
    of_key = np.zeros(keys, np.int64)
    places = np.zeros(keys, np.int64)  # workers that a key is on
    merged, lone = 0, 0
    for number in range(slides):
        first = max(number - slides_per_window, 0) * slide
        for old in range(first, max(number - slides_per_window + 1, 0) * slide):
            key, worker = codes[old], ids[old]
            records[key, worker] -= 1
            of_key[key] -= 1
            if records[key, worker] == 0:
                merged -= 2 * places[key] - 1
                lone += (places[key] == 2) - (places[key] == 1)
                places[key] -= 1
        busy = np.zeros(workers, np.int64)
        for row in range(number * slide, (number + 1) * slide):
            key, worker = codes[row], ids[row]
            found[0, number] += of_key[key] + 1
            busy[worker] += records[key, worker] + 1
            if records[key, worker] == 0:
                merged += 2 * places[key] + 1
                lone += (places[key] == 0) - (places[key] == 1)
                places[key] += 1
            records[key, worker] += 1
            of_key[key] += 1
        found[1, number] = busy.max()
        found[2, number] = merged
        found[3, number] = merged - lone
    return found
