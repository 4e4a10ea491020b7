"""The models by which the papers' rerun compares placements, against plain Python."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.papers import dalton_003_sync
from millrace_research.papers.dalton_003_clusters import comparisons
from millrace_research.papers.dalton_003_pace import NEVER, SlideFigures, combiners_of, forwards, pace, slide_figures
from millrace_research.papers.figures import PaperFigures

WORKERS, SLIDE = 4, 5
RECORDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, WORKERS - 1)), min_size=SLIDE, max_size=60)


def cut(records):
    """Return whole slides of ``SLIDE`` pairs of key and worker."""
    return [records[at : at + SLIDE] for at in range(0, len(records) - SLIDE + 1, SLIDE)]


def windows(slides, length):
    return [[pair for slide in slides[max(0, at + 1 - length) : at + 1] for pair in slide] for at in range(len(slides))]


@given(RECORDS, st.integers(1, 4))
def test_figures_by_slide_are_those_of_the_window_that_ends_with_it(records, length):
    slides = cut(records)
    keys = [np.array([key for key, _ in slide], np.uint64) for slide in slides]
    ids = [np.array([worker for _, worker in slide], np.int32) for slide in slides]
    found = slide_figures(keys, ids, WORKERS, length)
    for at, window in enumerate(windows(slides, length)):
        loads = Counter(worker for _, worker in window)
        places = Counter(key for key, _ in set(window))
        assert found.imbalance[at] == pytest.approx(max(loads.values()) * WORKERS / len(window) - 1)
        assert found.keys[at] == len(places)
        assert found.partials[at] == sum(places.values())
        assert found.split[at] == sum(count for count in places.values() if count > 1)
        assert -1 <= found.reward[at] < 0.5


@given(RECORDS, st.integers(1, 4))
def test_comparisons_are_of_records_of_a_key_and_of_its_partial_results(records, length):
    slides = cut(records)
    pairs = [pair for slide in slides for pair in slide]
    codes, ids = np.array([key for key, _ in pairs]), np.array([worker for _, worker in pairs], np.int32)
    found = comparisons(codes, ids, 6, WORKERS, SLIDE, length)
    for at, window in enumerate(windows(slides, length)):
        seen = window[: len(window) - SLIDE]
        alone, busy = 0, Counter()
        for key, worker in slides[at]:
            seen = [*seen, (key, worker)]
            alone += sum(other == key for other, _ in seen)
            busy[worker] += seen.count((key, worker))
        places = Counter(key for key, _ in set(window))
        squares = [count**2 for count in places.values()]
        assert found[:, at].tolist() == [
            alone,
            max(busy.values()),
            sum(squares),
            sum(square for square in squares if square > 1),
        ]


def figures(imbalance, partials, split):
    return SlideFigures(*(np.array([float(value)]) for value in (0, imbalance, 100, partials, split)))


def test_the_slower_of_combiners_and_reducers_sets_the_pace():
    even = figures(imbalance=0, partials=2_000, split=0)
    assert pace(even, 14_000, 16, 14, forwarding=True) == [14]  # of 1,000 records each
    assert pace(even, 14_000, 16, 14, forwarding=False) == [14]  # two reducers with 1,000 partial results each
    assert pace(figures(0, 8_000, 6_000), 14_000, 16, 14, forwarding=False) == [14_000 / 4_000]
    assert pace(figures(0, 8_000, 6_000), 14_000, 16, 14, forwarding=True) == [14_000 / 3_000]
    assert pace(figures(1, 2_000, 0), 14_000, 16, 14, forwarding=True) == [7]


def test_reducers_come_out_of_the_parallelism_where_keys_may_be_split():
    alone = {name: combiners_of(name, 32, 1) for name in ("FLD", "cAM-2", "PK-2", "DAGreedy", "Dalton")}
    assert alone == {"FLD": 32, "cAM-2": 32, "PK-2": 28, "DAGreedy": 28, "Dalton": 28}
    assert [combiners_of(name, 32, 2) for name in ("FLD", "cAM-2", "Dalton")] == [32, 28, 28]


def test_results_are_forwarded_where_it_is_known_that_a_key_is_on_one_worker():
    names = ("FLD", "cAM-2", "DAGreedy", "Dalton", NEVER, "SH", "PK-2", "CM-2")
    assert [name for name in names if forwards(name, 1)] == ["FLD", "cAM-2", "DAGreedy", "Dalton", NEVER]
    assert [name for name in names if forwards(name, 4)] == ["FLD", "Dalton"]


@pytest.mark.parametrize("replicas", [2, 8])
def test_dsync_is_twice_and_four_times_as_long_while_the_reducer_is_slower(replicas, monkeypatch):
    monkeypatch.setattr(dalton_003_sync, "REPLICAS", (1, replicas))
    monkeypatch.setattr(dalton_003_sync, "BUSY", (6.0,))
    found = PaperFigures()
    dalton_003_sync.run(found)
    intervals = found.with_replicas(replicas).each("dsync, adaptive", "Dalton", "interval")
    assert intervals == [10, 20, 40, 10]
