"""Paper 000 (Katsipoulakis et al., VLDB 2017): imbalance and aggregation cost of the partitioners of its Table 2.

Windows are tumbling and counted in records. The paper's own figures are throughput and latency of its engine. This
module measures their causes, the largest load, which the partial evaluation waits for, and Γ.
"""

from __future__ import annotations

from dataclasses import asdict

from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.placing import mean_cost, place, window_costs
from millrace_research.papers.streams import SKEWS, WORKERS, PaperStream, orders, real, zipf

ONE_CHOICE = ("FLD", "AM-2", "AM-5", "cAM-2", "cAM-5")
"""The paper's 1-choice algorithms: in a window, a key is on one worker."""
MANY_CHOICES = ("SH", "PK-2", "PK-5", "CM-2", "LM-2")
SKETCHED = ("CM-2-H", "AM-2-H", "LM-2-H")
TABLE_2 = ONE_CHOICE + MANY_CHOICES + SKETCHED
LATER = ("D-Choices", "W-Choices", "DAGreedy", "Dalton", "Prompt")
"""Algorithms that are not in the paper. They run beside the others on the Zipf streams."""

PAPER_WORKERS = (8, 16, 32, 64, 128)
FEW_WORKERS = PAPER_WORKERS[:3]
WINDOWS = {
    "lineitem-flags": ("lineitem-flags", 10_000),
    "gcm-classes, 10k": ("gcm-classes", 10_000),
    "lineitem-orders": ("lineitem-orders", 10_000),
    "110k orders": ("", 500_000),
    "debs-routes": ("debs-routes", 2_500),
    "debs-routes-2": ("debs-routes-2", 2_500),
    "debs-taxis": ("debs-taxis", 2_500),
    "nasa-hosts": ("nasa-hosts", 2_500),
    "gcm-classes": ("gcm-classes", 42),  # the average window of GCM Query 1, section 6.2.1
    "lineitem-flags, 42": ("lineitem-flags", 42),
    "gcm-jobs": ("gcm-jobs", 181),  # and of Query 2, section 6.2.2
    "nasa-hosts, 181": ("nasa-hosts", 181),
    "w106": ("w106", 100_000),
}
"""Streams with the records of a window. ``110k orders`` is synthetic, as large as TPC-H Query 3: see ``orders``."""
SHARED = tuple(name for name, (_, window) in WINDOWS.items() if window < 10_000)
"""Streams that several partitioners place, too, each a part of every window."""
_SHARED_WINDOWS = 30

ZIPF_WINDOWS, ZIPF_WINDOW = 3, 100_000


def run(figures: PaperFigures) -> None:
    """Run the queries' windows and those of Zipf streams."""
    for name, (source, window) in WINDOWS.items():
        stream = orders(name, 110_000) if not source else real(source).head(1_000_000).named(name)
        for workers in PAPER_WORKERS:
            measure_windows(figures, "windows", stream, window, TABLE_2, workers)
    for name in SHARED:
        source, window = WINDOWS[name]
        stream = real(source).head(min(_SHARED_WINDOWS * window, 10_000)).named(name)
        for workers in FEW_WORKERS:
            for replicas in REPLICAS[1:]:
                measure_windows(figures, "windows", stream, window, ONE_CHOICE + MANY_CHOICES, workers, replicas)
    for z in SKEWS:
        stream = zipf(z, ZIPF_WINDOWS * ZIPF_WINDOW)
        for workers in WORKERS:
            measure_windows(figures, "zipf windows", stream, ZIPF_WINDOW, TABLE_2 + LATER, workers)


def measure_windows(
    figures: PaperFigures,
    experiment: str,
    stream: PaperStream,
    window: int,
    algorithms: tuple[str, ...],
    workers: int,
    replicas: int = 1,
) -> None:
    """Add the mean cost of a stream's windows of ``window`` records under each of the algorithms."""
    windows = stream.slides(window)
    for algorithm in algorithms:
        placed = place(algorithm, windows, workers, replicas=replicas)
        cost = mean_cost(window_costs(windows, placed, workers))
        figures.add(Run(experiment, stream.name, algorithm, workers, replicas), **asdict(cost))
