"""The pool of fragmentation blocks against what it stands for: a set of (key, worker) per slide."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.partitioners.dalton.windows import Fragmentation, touch

ROWS, WORKERS = 5, 3
bits = st.tuples(st.integers(0, ROWS - 1), st.integers(0, WORKERS - 1))
slides = st.lists(st.lists(bits, max_size=12), min_size=1, max_size=12)


@kernel
def set_bit(bits, row, worker):
    touch(bits, row, worker)


def fill(fragmentation, slide):
    for row, worker in slide:
        set_bit(fragmentation.bits, row, worker)


def filled(slides, window, workers=WORKERS):
    """The last of ``slides`` is the current one."""
    fragmentation = Fragmentation(window, ROWS, workers)
    for slide in slides[:-1]:
        fill(fragmentation, slide)
        fragmentation.advance()
    fill(fragmentation, slides[-1])
    return fragmentation


def assert_equals(fragmentation, naive):
    """``naive``: the slides of the window, each a list of bits."""
    union = set().union(*naive)
    rows, workers = fragmentation.bits.head.shape
    assert fragmentation.bits.spread.tolist() == [sum(row == other for other, _ in union) for row in range(rows)]
    for row in range(rows):
        for worker in range(workers):
            past = sum((row, worker) in slide for slide in naive[:-1])
            assert fragmentation.bits.past[row, worker] == past
            assert fragmentation.bits.head[row, worker] == ((row, worker) in naive[-1])


@given(slides, st.integers(1, 4))
def test_fragmentation_is_the_union_of_the_slides_in_the_window(stream, window):
    for ended in range(1, len(stream) + 1):
        naive = stream[max(0, ended - window) : ended]
        fragmentation = filled(stream[:ended], window)
        assert_equals(fragmentation, naive)
        fragmentation.advance()
        assert_equals(fragmentation, [*naive, []][-window:])


@given(slides, st.integers(1, 4))
def test_replaying_the_slides_gives_the_same_fragmentation(stream, window):
    copy = Fragmentation(window, ROWS, WORKERS)
    copy.replay(filled(stream, window).slides())
    for slide in ([], [(0, 0)], []):
        assert_equals(copy, stream[-window:])
        fill(copy, slide)
        stream = [*stream[:-1], stream[-1] + slide, []]
        copy.advance()
        assert_equals(copy, stream[-window:])


@given(slides, st.integers(1, 4), st.permutations(range(ROWS)))
def test_rows_can_be_renumbered(stream, window, order):
    fragmentation = filled(stream, window)
    fragmentation.fit(np.array(order), ROWS + 2)
    renamed = [[(order.index(row), worker) for row, worker in slide] for slide in stream]
    assert_equals(fragmentation, renamed[-window:])
    fragmentation.advance()
    assert_equals(fragmentation, [*renamed, []][-window:])


@given(slides, st.integers(1, 4))
def test_rows_without_bits_can_be_removed(stream, window):
    fragmentation = filled(stream, window)
    kept = np.flatnonzero(fragmentation.bits.spread)
    fragmentation.fit(kept, 8)
    numbers = {row: number for number, row in enumerate(kept.tolist())}
    assert_equals(fragmentation, [[(numbers[row], worker) for row, worker in slide] for slide in stream[-window:]])


@given(slides, st.integers(1, 4), st.integers(1, 5))
def test_resizing_forgets_the_workers_that_are_gone(stream, window, workers):
    fragmentation = filled(stream, window)
    fragmentation.resize(workers)
    kept = [[(row, worker) for row, worker in slide if worker < workers] for slide in stream]
    assert_equals(fragmentation, kept[-window:])
    fragmentation.advance()
    assert_equals(fragmentation, [*kept, []][-window:])


@given(slides, st.integers(1, 4), st.lists(st.integers(0, WORKERS - 1), min_size=ROWS, max_size=ROWS))
def test_fragmentation_knows_which_keys_are_elsewhere_than_at_home(stream, window, homes):
    away = filled(stream, window).elsewhere(np.array(homes, np.int32))
    union = set().union(*stream[-window:])
    assert away.tolist() == [any(row == r and worker != homes[r] for row, worker in union) for r in range(ROWS)]
