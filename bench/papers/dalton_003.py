"""Paper 003 (Zapridou et al., VLDB 2022): Dalton's rewards, shifts of the distribution, several partitioners.

The paper measures the throughput of Flink jobs. A placement alone gives the reward, computed alike for every algorithm
(``slide_figures``), and a bound on the throughput (``_pace``). Unless stated otherwise, a slide is 10,000 records and
a window 60 slides, as in the paper's 60 s by 1 s.

The reward is R = -(p1 CI + p2 CA) with p1 = p2 = 1/2. CI (Eq. 3) compares the load of the record's worker with the
average. CA (Eq. 4) is the share of the workers that its key is on. Both cover the sliding window, including the record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.papers.figures import FigureKey, PaperFigures
from bench.papers.placing import place
from bench.papers.streams import ZIPF_KEYS, PaperStream, real, zipf
from millrace_jobs.benchmark.replaying import key_codes
from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.partitioners.base import Hashes, Workers

SLIDE = 10_000
SLIDES_PER_WINDOW = 60
COMBINERS = (8, 16, 32, 64)
EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0)

COMPARED = ("FLD", "cAM-2", "SH", "PK-2", "CM-2", "DAGreedy", "Dalton")
ALL_KEYS = "dalton:keys=all:fragmentation=window"
"""The paper's Non-Hybrid variant: all keys go through the bandit."""

EVEN, SKEWED = ("zipf 0", "zipf 0.5", "orm-busy"), ("zipf 1", "zipf 1.5", "zipf 2", "w106")
FORWARDING = ("FLD", "cAM-2", "DAGreedy", "Dalton")
"""Algorithms whose keys on a single worker need no reducer.

That is so by nature, or by key forwarding as in the paper's experiments.
"""
BOTH = "uniform and zipf 1.5"

SHIFT_WORKERS, SHIFT_WINDOW, PHASE = 16, 20, 60
"""Combiners, slides per window, and slides from one shift to the next, in the experiments with shifts."""
PARTITIONERS = (1, 2, 4, 8)


def run(figures: PaperFigures) -> None:
    """Run all experiments on paper 003."""
    rows = 2 * SLIDES_PER_WINDOW * SLIDE
    for stream in (*(zipf(z, rows) for z in EXPONENTS), real("orm-busy").head(rows), real("w106").head(rows)):
        for workers in COMBINERS:
            for algorithm in (*COMPARED, ALL_KEYS):
                _steady(figures, stream, algorithm, workers)
    for name, phases in _shifts().items():
        for algorithm in COMPARED:
            _shifting(figures, name, phases, algorithm)
    for partitioners in PARTITIONERS:
        _cooperating(figures, partitioners)
    _heavy_hitters(figures)


def _steady(figures: PaperFigures, stream: PaperStream, algorithm: str, workers: int) -> None:
    """Measure a stream without shifts. Only the second of two windows counts."""
    slides = stream.slides(SLIDE)
    began = time.perf_counter()
    placed = _place(algorithm, slides, workers, SLIDES_PER_WINDOW)
    seconds = time.perf_counter() - began
    found = slide_figures(slides, placed, workers, SLIDES_PER_WINDOW)
    second = SlideFigures(*(series[SLIDES_PER_WINDOW:] for series in found))
    figures.add(
        "rewards",
        stream.name,
        algorithm,
        workers,
        reward=second.reward.mean(),
        imbalance=second.imbalance.mean(),
        replication=(second.partials / second.keys).mean(),
        split=(second.split / second.partials).mean(),
        pace=_pace(second, workers, forwarding=algorithm in FORWARDING).mean(),
        pace_without_forwarding=_pace(second, workers, forwarding=False).mean(),
        seconds=seconds,
    )


def _place(algorithm: str, slides: Sequence[Hashes], workers: int, slides_per_window: int) -> list[Workers]:
    """Place slides, without a new window for cAM and CM, which would put keys on two workers in sliding windows."""
    window = len(slides) if algorithm in ("cAM-2", "CM-2") else slides_per_window
    return place(algorithm, slides, workers, slides_per_window=window)


def _pace(found: SlideFigures, workers: int, *, forwarding: bool) -> NDArray[np.float64]:
    """Return the best possible speedup of combiners and reducers over a single combiner, by slide.

    In each slide, the slowest combiner processes its part of the records. Meanwhile n/8 reducers, as in section 5.1,
    merge the window's partial results. With ``forwarding``, those of keys on a single worker go past the reducers. Both
    work at the same speed.
    """
    merged = found.split if forwarding else found.partials
    return SLIDE / np.maximum((1 + found.imbalance) * SLIDE / workers, merged / (workers / 8))


def _shifts() -> dict[str, list[PaperStream]]:
    """Return the phases of two streams: the paper's Figure 9a, and Figure 9d with exponents drawn from 0.5 to 1.5."""
    rows = PHASE * SLIDE
    alternating = [
        zipf(z, rows, seed=phase, first_key=phase * ZIPF_KEYS) for phase, z in enumerate((0.0, 1.5, 0.0, 1.5))
    ]
    exponents = np.random.default_rng(9).uniform(0.5, 1.5, 6)
    drawn = [zipf(float(z), rows, seed=phase, first_key=phase * ZIPF_KEYS) for phase, z in enumerate(exponents)]
    return {"alternating": alternating, "drawn": drawn}


def _shifting(figures: PaperFigures, name: str, phases: Sequence[PaperStream], algorithm: str) -> None:
    slides = [slide for phase in phases for slide in phase.slides(SLIDE)]
    placed = _place(algorithm, slides, SHIFT_WORKERS, SHIFT_WINDOW)
    found = slide_figures(slides, placed, SHIFT_WORKERS, SHIFT_WINDOW)
    pace = _pace(found, SHIFT_WORKERS, forwarding=algorithm in FORWARDING)
    for figure, values in (("pace by slide", pace), ("imbalance by slide", found.imbalance)):
        figures.series[FigureKey(f"shifts {name}", "phases", algorithm, SHIFT_WORKERS, figure)] = values.tolist()
    skewed = np.concatenate([pace[phase * PHASE : (phase + 1) * PHASE] for phase in range(1, len(phases), 2)])
    figures.add(
        f"shifts {name}",
        "phases",
        algorithm,
        SHIFT_WORKERS,
        pace=pace.mean(),
        skewed_pace=skewed.mean(),
        settling=_settling(found.imbalance[PHASE : 2 * PHASE]),
    )


def _settling(values: NDArray[np.float64]) -> int:
    """Return the number of slides until the values have settled.

    From then on, the mean of five values differs from the mean of the last ten by at most a tenth of the values' range.
    """
    smooth = np.convolve(values, np.full(5, 0.2), "valid")
    off = np.abs(smooth - values[-10:].mean()) > 0.1 * np.ptp(values)
    return int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0


def _cooperating(figures: PaperFigures, partitioners: int) -> None:
    """Measure partitioners, half of them on uniform keys and half on Zipf(1.5); one alone gets both (Figure 15)."""
    rows = SLIDES_PER_WINDOW * SLIDE  # of each half: 120 slides in all, of which the last 60 count
    uniform, skewed = zipf(0.0, rows, first_key=ZIPF_KEYS), zipf(1.5, rows)
    slides = [
        np.column_stack(halves).ravel() if partitioners == 1 else np.concatenate(halves)
        for halves in zip(uniform.slides(SLIDE // 2), skewed.slides(SLIDE // 2), strict=True)
    ]
    for algorithm, cooperative in (
        ("Dalton", True),
        ("Dalton, never syncing", False),
        ("DAGreedy", False),
        ("FLD", False),
    ):
        placed = place(
            algorithm.partition(",")[0],
            slides,
            SHIFT_WORKERS,
            replicas=partitioners,
            slides_per_window=SHIFT_WINDOW,
            cooperative=cooperative,
        )
        found = slide_figures(slides, placed, SHIFT_WORKERS, SHIFT_WINDOW)
        pace = _pace(found, SHIFT_WORKERS, forwarding=algorithm in FORWARDING)
        figures.add(
            f"partitioners {partitioners}",
            BOTH,
            algorithm,
            SHIFT_WORKERS,
            imbalance=found.imbalance[-SLIDES_PER_WINDOW:].mean(),
            pace=pace[-SLIDES_PER_WINDOW:].mean(),
        )


def _heavy_hitters(figures: PaperFigures) -> None:
    """Count the keys with f(k) >= L/n (Definition 3.3) on Zipf(1.0) over 600 keys; section 5.3 has 32 combiners."""
    ranks = np.arange(1, 601)
    frequencies = np.random.default_rng(0).multinomial(SLIDE, 1 / ranks / (1 / ranks).sum())
    for workers in COMBINERS:
        figures.add("heavy hitters", "600 keys", "", workers, keys=int((frequencies * workers >= SLIDE).sum()))


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
