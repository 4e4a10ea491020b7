"""Paper 003, Figure 10: the cost of statistics by STATS_WIN, and what more or fewer heavy hitters bring and cost."""

from __future__ import annotations

import time

import numpy as np

from millrace_jobs.partitioners.base import Workers
from millrace_jobs.partitioners.dalton.bandit import INITIAL
from millrace_jobs.partitioners.dalton.cooperative import GlobalPolicy
from millrace_jobs.partitioners.dalton.partitioner import Dalton
from millrace_research.papers.dalton_003_pace import SLIDE, SLIDES_PER_WINDOW, pace, reducers_of, slide_figures
from millrace_research.papers.figures import PaperFigures, Run
from millrace_research.papers.placing import SEED, new_replica
from millrace_research.papers.streams import PaperStream, synthetic, zipf

PARALLELISM = (8, 16, 32, 64)
STATISTICS = ("exact", "sketch", "hybrid")
STATS_WINDOWS = (10_000, 100_000, 1_000_000)
"""STATS_WIN in records."""
STATS_STREAMS = ("uniform", "zipf 1.5")
_RECORDS, _KEYS, _ROUNDS = 2_000_000, 1_000_000, 3

FEW_KEYS = 600
"""Keys of Figure 10c."""
HEAVY_HITTERS = (1, 2, 4, 8, 16, 32)
HEAVY_EXPONENTS = (1.0, 1.25)
HEAVY_COMBINERS = 32
_NO_OTHERS = 1 << 40
"""A load of the stream so large that no key becomes a heavy hitter by its frequency, and no STATS_WIN ends."""


def run(figures: PaperFigures) -> None:
    """Run the experiments on Dalton's overhead."""
    uniform = np.random.default_rng(0).integers(0, _KEYS, _RECORDS)
    for stream in (synthetic("uniform", uniform), zipf(1.5, _RECORDS)):
        for statistics in STATISTICS:
            for window in STATS_WINDOWS:
                _statistics(figures, stream, statistics, window)
    _heavy_hitters(figures)
    for z in HEAVY_EXPONENTS:
        stream = _few_keys(z, 2 * SLIDES_PER_WINDOW * SLIDE)
        for count in HEAVY_HITTERS:
            _splitting(figures, stream, count)


def _statistics(figures: PaperFigures, stream: PaperStream, statistics: str, window: int) -> None:
    """Measure the processor time per record of placing and counting; of several rounds the least counts."""
    seconds = []
    for _ in range(_ROUNDS):
        name = f"dalton:fragmentation=window:statistics={statistics}:statistics_window={window}"
        replica = new_replica(name, HEAVY_COMBINERS)
        began = time.thread_time()
        for slide in stream.slides(window):
            replica.route(slide)
            replica.advance()
        seconds.append(time.thread_time() - began)
    figures.add(
        Run("statistics", stream.name, f"{statistics} {window}", HEAVY_COMBINERS),
        nanoseconds=min(seconds) / len(stream.keys) * 1e9,
    )


def _heavy_hitters(figures: PaperFigures) -> None:
    """Count the keys with f(k) >= L/n (Definition 3.3) in slides of 600 keys; section 5.3 has Zipf(1.0)."""
    for z in HEAVY_EXPONENTS:
        slides = _few_keys(z, 2 * SLIDES_PER_WINDOW * SLIDE).slides(SLIDE)
        frequencies = [np.unique(slide, return_counts=True)[1] for slide in slides]
        for combiners in PARALLELISM:
            keys = [int((counts * combiners >= SLIDE).sum()) for counts in frequencies]
            figures.add(Run("heavy hitters", _few(z), "", combiners), keys=float(np.mean(keys)), most=max(keys))


def _splitting(figures: PaperFigures, stream: PaperStream, count: int) -> None:
    """Measure Dalton where the ``count`` most frequent keys are its heavy hitters, whatever their frequencies.

    After each slide the partitioner gets a global policy of these keys with its own values, as from a reducer.
    """
    slides = stream.slides(SLIDE)
    keys, frequencies = np.unique(stream.keys, return_counts=True)
    chosen = keys[np.argsort(-frequencies, kind="stable")[:count]]
    name = f"dalton:fragmentation=window:slides={SLIDES_PER_WINDOW}:statistics_window={_NO_OTHERS}"
    seconds = np.inf
    for _ in range(_ROUNDS):
        dalton = new_replica(name, HEAVY_COMBINERS)
        assert isinstance(dalton, Dalton)
        placed: list[Workers] = []
        spent = 0.0
        for slide in slides:
            q = np.nan_to_num(dalton.values(chosen), nan=INITIAL)  # the end of STATS_WIN in SYNC would drop them
            dalton.begin_sync()
            nothing = np.empty(0, np.uint64)
            dalton.end_sync(GlobalPolicy(HEAVY_COMBINERS, 1, _NO_OTHERS, chosen, q, nothing, 0))
            began = time.thread_time()
            placed.append(dalton.route(slide))
            spent += time.thread_time() - began
            dalton.advance()
        seconds = min(seconds, spent)
    found = slide_figures(slides, placed, HEAVY_COMBINERS, SLIDES_PER_WINDOW).since(SLIDES_PER_WINDOW)
    paces = pace(found, SLIDE, HEAVY_COMBINERS + reducers_of(HEAVY_COMBINERS), HEAVY_COMBINERS, forwarding=True)
    figures.add(
        Run("splitting", stream.name, f"{count} keys", HEAVY_COMBINERS),
        imbalance=found.imbalance.mean(),
        pace=paces.mean(),
        nanoseconds=seconds / len(stream.keys) * 1e9,
    )


def _few(z: float) -> str:
    return f"zipf {z:g}, {FEW_KEYS} keys"


def _few_keys(z: float, rows: int) -> PaperStream:
    shares = np.arange(1, FEW_KEYS + 1) ** -z
    ranks = np.random.default_rng(SEED).choice(FEW_KEYS, rows, p=shares / shares.sum())
    return synthetic(_few(z), ranks)
