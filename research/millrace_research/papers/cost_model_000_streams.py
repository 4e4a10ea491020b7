"""Paper 000's windows on streams that are neither its own nor synthetic, and windows with as many groups as DEBS has.

Table 3 of the paper has DEBS with 62,500 to 8.1 million groups. AM-2-H counts keys by sketches of 4,096 registers,
which windows of a few thousand groups do not fill, so section 6.1.3's comparison with AM-2 takes windows of that size.
"""

from __future__ import annotations

import numpy as np

from millrace_research.papers.cost_model_000 import PAPER_WORKERS, TABLE_2, ZIPF_WINDOWS, measure_windows
from millrace_research.papers.figures import PaperFigures
from millrace_research.papers.streams import PaperStream, real, synthetic

REAL_WINDOWS = {
    "words": 100_000,
    "flight-tails": 50_000,
    "flight-destinations": 10_000,
    "nasa-urls": 10_000,
    "apache-clients": 2_500,
}
"""Streams with the records of a window, of which the first three count."""

MANY_GROUPS = {"62.5k groups": 62_500, "500k groups": 500_000, "recommendations": 0}
"""Windows with many groups: groups of the synthetic ones, and a real stream, each of them one window."""
_RECORDS_PER_GROUP = 4
SKETCHING = ("FLD", "AM-2", "AM-2-H")


def run(figures: PaperFigures) -> None:
    """Run the windows of real streams, and those with many groups."""
    for name, window in REAL_WINDOWS.items():
        stream = real(name).head(ZIPF_WINDOWS * window)
        for workers in PAPER_WORKERS:
            measure_windows(figures, "real windows", stream, window, TABLE_2, workers)
    for name in MANY_GROUPS:
        stream = many_groups(name)
        for workers in PAPER_WORKERS:
            measure_windows(figures, "many groups", stream, len(stream.keys), SKETCHING, workers)


def many_groups(name: str) -> PaperStream:
    """Return a stream of ``MANY_GROUPS``. Synthetic ones draw four records per group, all groups alike."""
    groups = MANY_GROUPS[name]
    if not groups:
        return real(name)
    return synthetic(name, np.random.default_rng(0).integers(0, groups, _RECORDS_PER_GROUP * groups))
