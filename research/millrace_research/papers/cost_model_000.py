"""Paper 000 (Katsipoulakis et al., VLDB 2017): imbalance and aggregation cost of the partitioners of its Table 2.

Windows are tumbling and counted in records. The paper's own figures are throughput and latency of its engine. This
module measures their causes, the largest load, which the partial evaluation waits for, and Γ; and the memory and the
time that partitioning takes.
"""

from __future__ import annotations

import time
from dataclasses import asdict

import numpy as np

from millrace_research.comparison.contenders import parse_contender
from millrace_research.comparison.state_memory import measure_state
from millrace_research.papers.figures import REPLICAS, PaperFigures, Run
from millrace_research.papers.placing import ALGORITHMS, mean_cost, new_replica, place, window_costs
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

TABLE_4_KEYS = 8_100_000
_SKETCHED_KEYS = 200_000
"""Keys for sketches, whose size does not depend on them; with all keys they would take minutes."""
MEMORY_WORKERS = (8, 32)
TABLE_4 = ("CM-2", "AM-2", "LM-2", *SKETCHED)

TIMED = {"debs-routes": 2_500, "w106": 100_000}
"""Streams of Figure 13, with the records of a window."""
_TIMED_ROUNDS, _TIMED_WINDOWS = 3, 4


def run(figures: PaperFigures) -> None:
    """Run all experiments on paper 000."""
    for name, (source, window) in WINDOWS.items():
        stream = orders(name, 110_000) if not source else real(source).head(1_000_000).named(name)
        for workers in PAPER_WORKERS:
            _windows(figures, "windows", stream, window, TABLE_2, workers)
    for name in SHARED:
        source, window = WINDOWS[name]
        stream = real(source).head(min(_SHARED_WINDOWS * window, 10_000)).named(name)
        for workers in FEW_WORKERS:
            for replicas in REPLICAS[1:]:
                _windows(figures, "windows", stream, window, ONE_CHOICE + MANY_CHOICES, workers, replicas)
    for z in SKEWS:
        stream = zipf(z, ZIPF_WINDOWS * ZIPF_WINDOW)
        for workers in WORKERS:
            _windows(figures, "zipf windows", stream, ZIPF_WINDOW, TABLE_2 + LATER, workers)
    for algorithm in TABLE_4:
        for workers in MEMORY_WORKERS:
            _memory(figures, algorithm, workers)
    for name, window in TIMED.items():
        for algorithm in TABLE_2:
            for workers in FEW_WORKERS:
                _latency(figures, real(name).head(_TIMED_WINDOWS * window), window, algorithm, workers)


def _windows(
    figures: PaperFigures,
    experiment: str,
    stream: PaperStream,
    window: int,
    algorithms: tuple[str, ...],
    workers: int,
    replicas: int = 1,
) -> None:
    windows = stream.slides(window)
    for algorithm in algorithms:
        placed = place(algorithm, windows, workers, replicas=replicas)
        cost = mean_cost(window_costs(windows, placed, workers))
        figures.add(Run(experiment, stream.name, algorithm, workers, replicas), **asdict(cost))


def _memory(figures: PaperFigures, algorithm: str, workers: int) -> None:
    """Measure what a process grows by when all keys of section 6.3.2 are in one window, and the saved state.

    The paper sends each key to both candidates. Here a key is in one table with its workers as bits, so that its second
    record adds nothing, and it comes once.
    """
    keys = _SKETCHED_KEYS if algorithm in SKETCHED else TABLE_4_KEYS
    found = measure_state(parse_contender(ALGORITHMS[algorithm], 1), workers, keys)
    figures.add(Run("memory", "keys", algorithm, workers), megabytes=found.resident / 1e6, saved=found.saved / 1e6)


def _latency(figures: PaperFigures, stream: PaperStream, window: int, algorithm: str, workers: int) -> None:
    """Measure the processor time that placing a window takes; of several rounds the least counts."""
    seconds = []
    for _ in range(_TIMED_ROUNDS):
        replica = new_replica(algorithm, workers)
        for keys in stream.slides(window):
            began = time.thread_time()
            replica.route(keys)
            seconds.append(time.thread_time() - began)
            replica.advance()
    least = np.min(np.reshape(seconds, (_TIMED_ROUNDS, -1)), axis=0) / window * 1e9
    figures.add(
        Run("latency", stream.name, algorithm, workers),
        median=float(np.median(least)),
        percentile_99=float(np.percentile(least, 99)),
    )
