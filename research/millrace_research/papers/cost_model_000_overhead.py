"""Paper 000, section 6.3: the memory and the time that partitioning takes."""

from __future__ import annotations

import time

import numpy as np

from millrace_research.comparison.contenders import parse_contender
from millrace_research.comparison.state_memory import measure_state
from millrace_research.papers.cost_model_000 import FEW_WORKERS, SKETCHED, TABLE_2
from millrace_research.papers.figures import PaperFigures, Run
from millrace_research.papers.placing import ALGORITHMS, new_replica
from millrace_research.papers.streams import PaperStream, real

TABLE_4_KEYS = 8_100_000
_SKETCHED_KEYS = 200_000
"""Keys for sketches, whose size does not depend on them; with all keys they would take minutes."""
MEMORY_WORKERS = (8, 32)
TABLE_4 = ("CM-2", "AM-2", "LM-2", *SKETCHED)

TIMED = {"debs-routes": 2_500, "w106": 100_000}
"""Streams of Figure 13, with the records of a window."""
_TIMED_ROUNDS, _TIMED_WINDOWS = 3, 4


def run(figures: PaperFigures) -> None:
    """Measure state in memory, and the time to place a window."""
    for algorithm in TABLE_4:
        for workers in MEMORY_WORKERS:
            _memory(figures, algorithm, workers)
    for name, window in TIMED.items():
        for algorithm in TABLE_2:
            for workers in FEW_WORKERS:
                _latency(figures, real(name).head(_TIMED_WINDOWS * window), window, algorithm, workers)


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
