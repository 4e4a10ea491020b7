import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.benchmark.reading import NO_TIME, Stream
from millrace_jobs.benchmark.slides import Spans, cut, parse_spans


def stream(micros=None, rows=None):
    times = None if micros is None else np.array(micros, np.int64)
    return Stream(np.zeros(len(micros) if rows is None else rows, np.uint64), times, 0.0)


def spans(slide, window=None, *, timed=True):
    return Spans(slide if window is None else window, slide, timed)


def test_lengths():
    assert parse_spans("10 minutes", "60s", timed=True) == Spans(600_000_000, 60_000_000, True)
    assert parse_spans("10 minutes", "60s", timed=True).slides == 10
    assert parse_spans("1000", "0250", timed=False) == Spans(1000, 250, False)


@pytest.mark.parametrize(
    ("window", "slide", "timed", "said"),
    [
        (
            "60s",
            "25s",
            True,
            "--slide 25s does not divide --window 60s; write a window that is a whole number of slides",
        ),
        ("30s", "60s", True, "--slide 60s does not divide --window 30s"),
        (
            "60",
            "60",
            True,
            "--window 60 is not a duration longer than zero; with --time, write a whole number and a unit",
        ),
        ("60s", "0s", True, "--slide 0s is not a duration longer than zero"),
        ("60s", "60s", False, "--window 60s is not a number of records; write a whole number of at least 1, or name"),
        ("0", "0", False, "--window 0 is not a number of records"),
        ("-5", "5", False, "--window -5 is not a number of records"),
        ("9" * 5000, "5", False, "is not a number of records"),
        ("1 day", "1us", True, "is 86,400,000,000 slides of 1us long; write a longer --slide: at most 100,000"),
    ],
)
def test_bad_lengths(window, slide, timed, said):
    with pytest.raises(MillraceError) as error:
        parse_spans(window, slide, timed=timed)
    assert said in str(error.value)


def test_records_are_counted_without_times():
    slides = cut(stream(rows=7), spans(3, timed=False))
    assert slides.numbers.tolist() == [0, 1, 2]
    assert slides.edges.tolist() == [0, 3, 6, 7]


def test_slides_are_multiples_of_their_length_since_1970():
    slides = cut(stream([-1, 0, 9, 10, 35]), spans(10))
    assert slides.numbers.tolist() == [-1, 0, 1, 3]
    assert slides.edges.tolist() == [0, 1, 3, 4, 5]
    assert (slides.late, slides.without_time) == (0, 0)


def test_late_records_and_records_without_time_belong_to_the_current_slide():
    slides = cut(stream([NO_TIME, 12, 5, 25, NO_TIME, 19, 21, 31]), spans(10))
    assert slides.numbers.tolist() == [1, 2, 3]
    assert slides.edges.tolist() == [0, 3, 7, 8]
    assert (slides.late, slides.without_time) == (2, 2)


def test_a_sparse_stream_has_only_the_slides_with_records():
    slides = cut(stream([0, 10**15, 10**18]), spans(1))
    assert slides.numbers.tolist() == [0, 10**15, 10**18]


def test_too_many_slides():
    with pytest.raises(MillraceError, match="--slide cuts the input into 100,001 slides; write a longer one"):
        cut(stream(rows=100_001), spans(1, timed=False))


@given(st.lists(st.one_of(st.integers(-50, 50), st.just(NO_TIME)), min_size=1).filter(lambda t: max(t) > NO_TIME))
def test_agrees_with_a_walk_through_the_records(micros):
    slides = cut(stream(micros), spans(7))
    current, found = next(t for t in micros if t != NO_TIME), []
    for time in micros:
        current = max(current, time)
        if not found or found[-1][0] != current // 7:
            found.append((current // 7, []))
        found[-1][1].append(time)
    assert slides.numbers.tolist() == [number for number, _ in found]
    assert np.diff(slides.edges).tolist() == [len(times) for _, times in found]
    assert slides.late == sum(NO_TIME < time < number * 7 for number, times in found for time in times)
