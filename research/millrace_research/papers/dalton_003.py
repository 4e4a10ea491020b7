"""Paper 003 (Zapridou et al., VLDB 2022), sections 5.1 and 5.2, tuple at a time: scaling, and shifts.

A slide is 5,000 records and a window 60 slides, as in the paper's 60 s by 1 s; of 20 slides where the stream shifts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from millrace_research.papers.dalton_003_pace import (
    COMPARED,
    SLIDE,
    SLIDES_PER_WINDOW,
    combiners_of,
    forwards,
    pace,
    place_slides,
    reducers_of,
    slide_figures,
)
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.streams import ZIPF_KEYS, PaperStream, real, zipf

PARALLELISM = (8, 16, 32, 64)
SHARED_PARALLELISM = 32
"""The parallelism of the runs with several partitioners."""
EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0)
ALL_KEYS = "dalton:keys=all:fragmentation=window"
"""The paper's Non-Hybrid variant: all keys go through the bandit."""

REAL = ("orm-busy", "w106", "words")
EVEN = ("zipf 0", "zipf 0.5", "orm-busy")
SKEWED = ("zipf 1", "zipf 1.5", "zipf 2", "w106", "words")

SHIFT_PARALLELISM, SHIFT_WINDOW, PHASE = 16, 20, 60
"""Parallelism, slides per window, and slides from one shift to the next, in the experiments with shifts."""
ALTERNATING = ("alternating", "alternating, real")
DRAWN = ("drawn", "drawn again")


def parallelisms(replicas: int) -> tuple[int, ...]:
    """Return the parallelisms that streams without shifts are run on."""
    return PARALLELISM if replicas == 1 else (SHARED_PARALLELISM,)


def steady_streams() -> list[PaperStream]:
    """Return the streams without shifts, two windows each."""
    rows = 2 * SLIDES_PER_WINDOW * SLIDE
    return [*(zipf(z, rows) for z in EXPONENTS), *(real(name).head(rows) for name in REAL)]


def run(figures: PaperFigures) -> None:
    """Run the experiments on tuples at a time."""
    for stream in steady_streams():
        for parallelism in PARALLELISM:
            _steady(figures, stream, ALL_KEYS, parallelism, 1)
            for algorithm in COMPARED:
                _steady(figures, stream, algorithm, parallelism, 1)
        for algorithm in COMPARED:
            for replicas in REPLICAS[1:]:
                _steady(figures, stream, algorithm, SHARED_PARALLELISM, replicas)
    for name, phases in shifts().items():
        for algorithm in COMPARED:
            for replicas in REPLICAS:
                _shifting(figures, name, phases, algorithm, replicas)


def _steady(figures: PaperFigures, stream: PaperStream, algorithm: str, parallelism: int, replicas: int) -> None:
    """Measure a stream without shifts. Only the second of two windows counts.

    All figures are of as many combiners as an algorithm with reducers has, so that they can be compared. Only the pace
    is of the algorithm's own number.
    """
    slides = stream.slides(SLIDE)
    common, own = parallelism - reducers_of(parallelism), combiners_of(algorithm, parallelism, replicas)
    began = time.thread_time()
    placed = place_slides(algorithm, slides, common, SLIDES_PER_WINDOW, replicas)
    seconds = time.thread_time() - began
    second = slide_figures(slides, placed, common, SLIDES_PER_WINDOW).since(SLIDES_PER_WINDOW)
    fastest = second
    if own != common:
        placed = place_slides(algorithm, slides, own, SLIDES_PER_WINDOW, replicas)
        fastest = slide_figures(slides, placed, own, SLIDES_PER_WINDOW).since(SLIDES_PER_WINDOW)
    paces = [
        pace(fastest, SLIDE, parallelism, own, forwarding=forwarding)
        for forwarding in (forwards(algorithm, replicas), False)
    ]
    figures.add(
        Run("rewards", stream.name, algorithm, parallelism, replicas),
        reward=second.reward.mean(),
        imbalance=second.imbalance.mean(),
        replication=(second.partials / second.keys).mean(),
        split=(second.split / second.partials).mean(),
        pace=paces[0].mean(),
        pace_without_forwarding=paces[1].mean(),
        seconds=seconds,
    )


def shifts() -> dict[str, list[PaperStream]]:
    """Return the phases of streams that shift.

    The first two alternate, as in the paper's Figure 9a, between even and skewed keys. The others are as in Figure 9d,
    with exponents drawn from 0.5 to 1.5. No key is in two phases, but for real streams.
    """
    rows = PHASE * SLIDE
    alternating = [
        zipf(z, rows, seed=phase, first_key=phase * ZIPF_KEYS) for phase, z in enumerate((0.0, 1.5, 0.0, 1.5))
    ]
    even, skewed = real("orm-busy").slides(rows), real("w106").slides(rows)
    found = {
        "alternating": alternating,
        "alternating, real": [PaperStream("", keys) for keys in (even[0], skewed[0], even[1], skewed[4])],
    }
    for name, seed in zip(DRAWN, (9, 10), strict=True):
        exponents = np.random.default_rng(seed).uniform(0.5, 1.5, 4)
        found[name] = [
            zipf(float(z), rows, seed=phase, first_key=phase * ZIPF_KEYS) for phase, z in enumerate(exponents)
        ]
    return found


def _shifting(figures: PaperFigures, name: str, phases: Sequence[PaperStream], algorithm: str, replicas: int) -> None:
    slides = [slide for phase in phases for slide in phase.slides(SLIDE)]
    combiners = combiners_of(algorithm, SHIFT_PARALLELISM, replicas)
    placed = place_slides(algorithm, slides, combiners, SHIFT_WINDOW, replicas)
    found = slide_figures(slides, placed, combiners, SHIFT_WINDOW)
    paces = pace(found, SLIDE, SHIFT_PARALLELISM, combiners, forwarding=forwards(algorithm, replicas))
    run = Run("shifts", name, algorithm, SHIFT_PARALLELISM, replicas)
    skewed = [slice(phase * PHASE, (phase + 1) * PHASE) for phase in range(1, len(phases), 2)]
    figures.add(
        run,
        pace=paces.mean(),
        skewed_pace=np.concatenate([paces[phase] for phase in skewed]).mean(),
        first_window_pace=np.concatenate([paces[phase][:SHIFT_WINDOW] for phase in skewed]).mean(),
        settling=max(_settling(found.imbalance[phase]) for phase in skewed),
    )
    if name == "alternating" and replicas == 1:
        figures.add_series(run, pace=paces.tolist(), imbalance=found.imbalance.tolist())


def _settling(values: NDArray[np.float64]) -> int:
    """Return the number of slides until the values have settled.

    From then on, the mean of five values differs from the mean of the last ten by at most a tenth of the values' range.
    """
    smooth = np.convolve(values, np.full(5, 0.2), "valid")
    off = np.abs(smooth - values[-10:].mean()) > 0.1 * np.ptp(values)
    return int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0
