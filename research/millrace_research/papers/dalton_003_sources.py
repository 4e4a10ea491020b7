"""Paper 003, section 5.4: several partitioners that learn together, with sources that are alike or not.

A slide is 20 s and a window 60 s, so a window has three slides; a slide has ten times the records of one of a second
where the stream is long enough. Partitioners get contiguous parts of each slide, so two halves of a slide are
two sources. Cooperating ones synchronize at the end of each slide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.base import Hashes, Workers
from millrace_jobs.partitioners.dalton.cooperative import reduce
from millrace_jobs.partitioners.dalton.partitioner import Dalton
from millrace_research.papers.dalton_003_pace import (
    COMPARED,
    NEVER,
    SlideFigures,
    combiners_of,
    forwards,
    pace,
    place_slides,
    reducers_of,
    slide_figures,
)
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.streams import ZIPF_KEYS, PaperStream, real, zipf

WINDOW = 3
SLIDE, SLIDES = 100_000, 9
"""Records of a slide of 20 s, and slides of a run, of which the last window's worth counts."""

UNIFORM_AND_ZIPF, TWO_ZIPFS = "uniform and zipf 1.5", "two of zipf 1.5"
EVEN_AND_SKEWED, TWO_SKEWED = "orm-busy and w106", "w106, early and late"
MIXED, ALIKE = (UNIFORM_AND_ZIPF, EVEN_AND_SKEWED), (TWO_ZIPFS, TWO_SKEWED)
"""Figure 13's setups, (i) and (ii), each on synthetic and on real keys."""
REAL = {"w106": SLIDE, "words": SLIDE, "nasa-urls": 3_000, "apache-clients": 1_000, "gcm-jobs": 3_000,
        "flight-destinations": 30_000}  # fmt: skip
"""Real skewed streams that all partitioners see alike, with the records of a slide."""
_REAL_KEYS = (EVEN_AND_SKEWED, TWO_SKEWED, *REAL)
CONTENDERS = (*COMPARED, NEVER)


def parallelism_of(name: str) -> int:
    """Return the parallelism of a setup: 32 for real keys, of which few have 1/16 of the records."""
    return 32 if name in _REAL_KEYS else 16


EVERY = (0.5, 1.0, 2.0, 4.0)
"""DSYNC of Figure 14a, in slides."""
_IN_RECORDS = 1 << 40
"""STATS_WIN so large that only a synchronization ends it: section 4.1 maps DSYNC to it."""


def run(figures: PaperFigures) -> None:
    """Run the experiments on several partitioners."""
    for name in (*MIXED, *ALIKE, *REAL):
        for replicas in REPLICAS:
            slides = setup(name, replicas)
            for algorithm in CONTENDERS:
                _compare(figures, name, slides, algorithm, replicas)
    for name in (*MIXED, *ALIKE):
        for replicas in REPLICAS[1:]:
            slides = setup(name, replicas)
            for every in EVERY:
                _synchronizing(figures, name, slides, every, replicas)


def setup(name: str, replicas: int) -> list[Hashes]:
    """Return the slides of a setup. A partitioner that is alone gets the records of two sources in turn."""
    if name in REAL:
        return real(name).slides(REAL[name])[:SLIDES]
    half, rows = SLIDE // 2, SLIDE // 2 * SLIDES
    sources = {
        UNIFORM_AND_ZIPF: lambda: (zipf(0.0, rows, first_key=ZIPF_KEYS), zipf(1.5, rows)),
        TWO_ZIPFS: lambda: (zipf(1.5, rows, seed=1, first_key=ZIPF_KEYS), zipf(1.5, rows)),
        EVEN_AND_SKEWED: lambda: (real("orm-busy").head(rows), real("w106").head(rows)),
        TWO_SKEWED: lambda: (real("w106").head(rows), PaperStream("late", real("w106").keys[-rows:])),
    }
    first, second = sources[name]()
    return [
        np.column_stack(halves).ravel() if replicas == 1 else np.concatenate(halves)
        for halves in zip(first.slides(half), second.slides(half), strict=True)
    ]


def _compare(figures: PaperFigures, name: str, slides: Sequence[Hashes], algorithm: str, replicas: int) -> None:
    parallelism = parallelism_of(name)
    combiners = combiners_of(algorithm, parallelism, replicas)
    placed = place_slides(algorithm, slides, combiners, WINDOW, replicas)
    found = slide_figures(slides, placed, combiners, WINDOW).since(len(slides) - WINDOW)
    last = slice(len(slides) - WINDOW, None)
    figures.add(
        Run("sources", name, algorithm, parallelism, replicas),
        **_figures(found, len(slides[0]), parallelism, combiners, forwards(algorithm, replicas)),
        top_places=_top_places(slides[last], placed[last]),
    )


def _figures(found: SlideFigures, rows: int, parallelism: int, combiners: int, forwarding: bool) -> dict[str, float]:
    return {
        "imbalance": found.imbalance.mean(),
        "replication": (found.partials / found.keys).mean(),
        "pace": pace(found, rows, parallelism, combiners, forwarding=forwarding).mean(),
    }


def _top_places(slides: Sequence[Hashes], placed: Sequence[Workers]) -> int:
    """Return the number of workers that the most frequent key of a window is on."""
    window, ids = np.concatenate(slides), np.concatenate(placed)
    keys, counts = np.unique(window, return_counts=True)
    return len(np.unique(ids[window == keys[np.argmax(counts)]]))


def _synchronizing(figures: PaperFigures, name: str, slides: Sequence[Hashes], every: float, replicas: int) -> None:
    """Measure Dalton with a synchronization after each ``every`` slides (Figure 14a).

    Combiners may forward only if there is one in each slide (section 4.2).
    """
    parallelism = parallelism_of(name)
    combiners = parallelism - reducers_of(parallelism)
    members = [_member(replica, replicas, combiners) for replica in range(replicas)]
    placed = []
    for number, slide in enumerate(slides):
        parts = [np.array_split(part, 2) for part in np.array_split(slide, replicas)]
        ids: list[list[Workers]] = [[] for _ in members]
        for half in (0, 1):
            for member, part, of_member in zip(members, parts, ids, strict=True):
                of_member.append(member.route(np.ascontiguousarray(part[half])))
            if (2 * number + half + 1) % round(2 * every) == 0:
                _synchronize(members)
        for member in members:
            member.advance()
        placed.append(np.concatenate([part for of_member in ids for part in of_member]))
    found = slide_figures(slides, placed, combiners, WINDOW).since(len(slides) - WINDOW)
    figures.add(
        Run("dsync", name, f"{every:g} slides", parallelism, replicas),
        **_figures(found, len(slides[0]), parallelism, combiners, every <= 1),
    )


def _member(replica: int, replicas: int, workers: int) -> Dalton:
    parameters = {"slides": WINDOW, "fragmentation": "window", "statistics_window": _IN_RECORDS}
    made = registry.make("dalton", workers=workers, replica=replica, replicas=replicas, seed=1, parameters=parameters)
    assert isinstance(made, Dalton)
    return made


def _synchronize(members: Sequence[Dalton]) -> None:
    policy = reduce([member.begin_sync() for member in members])
    for member in members:
        member.end_sync(policy)
