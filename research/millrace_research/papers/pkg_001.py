"""Paper 001 (Nasir et al., ICDE 2015): Partial Key Grouping against hashing, with one and many sources and workers.

As in the paper, imbalance is that of the whole stream. It is given as a fraction of the stream's messages.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from millrace_jobs.partitioners.base import Workers
from millrace_jobs.partitioners.placement_cost import imbalance
from millrace_jobs.sources.base import bounds
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.placing import place, window_costs
from millrace_research.papers.streams import SKEWS, WORKERS, PaperStream, log_normal, real, synthetic, zipf

PAPER_WORKERS = (5, 10, 50, 100)
SOURCES = (*REPLICAS[1:], 5, 10, 20)
"""Numbers of sources; the paper has 5, 10 and 20."""
SLIDE = 10_000
"""Records after which every source has had its turn. Nothing is forgotten at the end of a slide."""

CHOICES = ("SH", "FLD", "PK-2", "PK-5", "cAM-2")
"""Compared algorithms. In one window over the whole stream, cAM-2 is the paper's static PoTC.

Static PoTC sends the first message of a key to the less loaded of two workers, and all later ones to the same worker.
"""

KEYS_PER_WORKER = 5
"""Keys per worker of uniform streams on which the bound of the imbalance is met: p1 is 1/(5n), the theorem's most."""
LENGTHS = (100_000, 1_000_000)
"""Messages of these streams: at least n² each, as the theorem asks for."""


def run(figures: PaperFigures) -> None:
    """Run all experiments on paper 001."""
    streams = [*log_normals(), real("w106")]
    for stream in streams:
        for workers in PAPER_WORKERS:
            measure_whole(figures, "whole", stream, workers)
    for z in SKEWS:
        stream = zipf(z, 1_000_000)
        for workers in WORKERS:
            measure_whole(figures, "whole zipf", stream, workers)
    for stream in streams:
        measure_sources(figures, stream.head(1_000_000))
        measure_places(figures, stream.head(1_000_000))
    for workers in WORKERS:
        for length in LENGTHS:
            _bounded(figures, workers, length)


def log_normals(rows: int = 10_000_000) -> list[PaperStream]:
    """Return the first ``rows`` messages of the paper's two synthetic streams."""
    return [log_normal("LN1", 1.789, 2.366, rows), log_normal("LN2", 2.245, 1.133, rows)]


def measure_whole(figures: PaperFigures, experiment: str, stream: PaperStream, workers: int) -> None:
    """Add the imbalance of a whole stream under each of the algorithms."""
    for algorithm in CHOICES:
        (ids,) = place(algorithm, [stream.keys], workers)
        figures.add(Run(experiment, stream.name, algorithm, workers), imbalance=_fraction(ids, workers))
    figures.add(Run(experiment, stream.name, "", workers), top_share=stream.top_share, messages=len(stream.keys))


def measure_sources(figures: PaperFigures, stream: PaperStream, rows: int = SLIDE) -> None:
    """Add the imbalance under one source and several, which get contiguous parts of each slide of ``rows`` records."""
    for workers in PAPER_WORKERS:
        for sources in (1, *SOURCES):
            slides = stream.slides(rows)
            placed = place("PK-2", slides, workers, replicas=sources)
            each = [[ids[a:b] for ids in placed] for a, b in pairwise(bounds(rows, sources))]
            local = sum(_fraction(np.concatenate(ids), workers) * len(np.concatenate(ids)) for ids in each)
            figures.add(
                Run("local estimates", stream.name, "PK-2", workers, sources),
                imbalance=_fraction(np.concatenate(placed), workers),
                sum_of_local=local / len(stream.keys),
            )


def measure_places(figures: PaperFigures, stream: PaperStream) -> None:
    """Add the mean number of workers per key."""
    for workers in PAPER_WORKERS:
        for algorithm in ("FLD", "PK-2", "SH"):
            (ids,) = place(algorithm, [stream.keys], workers)
            (cost,) = window_costs([stream.keys], [ids], workers)
            figures.add(Run("places", stream.name, algorithm, workers), replication=cost.replication_factor or 1.0)


def _bounded(figures: PaperFigures, workers: int, length: int) -> None:
    """Measure the imbalance on the uniform streams for which the paper says that its bound is best possible.

    It is given as a multiple of the average load, length / workers, which the theorem says is bounded.
    """
    keys = np.random.default_rng(workers).integers(0, KEYS_PER_WORKER * workers, length)
    stream = synthetic(f"uniform, {length:,}", keys)
    for algorithm in ("FLD", "PK-2"):
        for sources in REPLICAS:
            placed = place(algorithm, stream.slides(SLIDE), workers, replicas=sources)
            figures.add(
                Run("bounded", stream.name, algorithm, workers, sources),
                of_average=_fraction(np.concatenate(placed), workers) * workers,
            )


def _fraction(ids: Workers, workers: int) -> float:
    return imbalance(np.bincount(ids, minlength=workers))[0] / len(ids)
