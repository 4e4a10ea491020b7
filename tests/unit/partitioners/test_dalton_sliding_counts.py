import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dalton.windows import SlidingCounts

# What is counted in each of some slides: counters of three.
streams = st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=12)


def count(counts, stream):
    for at in stream:
        counts.head[at] += 1


@given(streams, st.integers(1, 5))
def test_the_totals_are_those_of_the_newest_slides(slides, window):
    counts = SlidingCounts(window, 3)
    for ended, stream in enumerate(slides, 1):
        count(counts, stream)
        newest = [np.bincount(slide, minlength=3).tolist() for slide in slides[max(0, ended - window) : ended]]
        assert counts.totals.tolist() == np.sum(newest, axis=0).tolist()
        assert counts.history.tolist() == [[0, 0, 0]] * (window - len(newest)) + newest
        counts.advance()
        assert (counts.past + counts.head).tolist() == counts.totals.tolist()


@given(streams, streams, st.integers(1, 5))
def test_a_history_goes_on_as_its_original(before, after, window):
    original = SlidingCounts(window, 3)
    for stream in before:
        count(original, stream)
        original.advance()
    copy = SlidingCounts.of(original.history)
    for stream in after:
        for counts in (original, copy):
            count(counts, stream)
        assert copy.totals.tolist() == original.totals.tolist()
        assert copy.history.tolist() == original.history.tolist()
        for counts in (original, copy):
            counts.advance()


def test_a_window_of_one_slide_forgets_at_once():
    counts = SlidingCounts(1, 2)
    counts.head[1] = 7
    assert counts.totals.tolist() == [0, 7]
    counts.advance()
    assert counts.totals.tolist() == [0, 0]


def test_empty_slides_push_old_ones_out():
    counts = SlidingCounts(3, 1)
    counts.head[0] = 5
    seen = []
    for _ in range(4):
        counts.advance()
        seen.append(int(counts.totals[0]))
    assert seen == [5, 5, 0, 0]


def test_the_totals_are_a_copy():
    counts = SlidingCounts(2, 2)
    counts.totals[0] = 9
    assert counts.totals[0] == 0
