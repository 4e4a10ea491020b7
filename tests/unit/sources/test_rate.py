"""The generated stream: what a row is depends on nothing but the seed and its number."""

import itertools
import pickle
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.sources.generated.rows import GeneratedRows, RateSource
from millrace_jobs.sources.pacing import RatePace
from record_tables import Collected, rows_of

START = datetime(2024, 5, 1, tzinfo=UTC)


def rate(rows_per_second=1000.0, **options):
    return RateSource("s", rows_per_second, start_time=START, **options)


def read(source, begin, end, replicas=1):
    epoch = source.initial()["epoch"]
    parts = rows_of(source, {"row": begin, "epoch": epoch}, {"row": end, "epoch": epoch}, replicas)
    return [row for part in parts for row in part.rows]


@given(
    begin=st.integers(0, 10**9),
    cuts=st.lists(st.integers(0, 50), max_size=4),
    replicas=st.integers(1, 7),
    seed=st.integers(0, 2**63),
    skew=st.floats(0, 3),
)
def test_any_cut_gives_the_same_rows(begin, cuts, replicas, seed, skew):
    source = rate(seed=seed, skew=skew)
    ends = np.cumsum([begin, *cuts]).tolist()
    together = read(source, ends[0], ends[-1])
    assert len(together) == ends[-1] - ends[0]
    assert [row for a, b in itertools.pairwise(ends) for row in read(source, a, b, replicas)] == together
    assert read(pickle.loads(pickle.dumps(source)), ends[0], ends[-1]) == together


@given(seed=st.integers(0, 2**63), row=st.integers(0, 2**62))
def test_a_row_follows_from_its_seed_and_number_alone(seed, row):
    key_word, value_word, *_ = map(int, np.random.Philox(key=seed, counter=row).random_raw(4))
    micros = round(START.timestamp() * 1e6) + row // 5
    piece = GeneratedRows(row, row + 1, round(START.timestamp() * 1e6))
    (batch,) = rate(5e6, keys=10, seed=seed).read(piece, "0-0")
    timestamp, key, value = (column[0] for column in batch.columns)
    assert key.as_py() == f"key-{key_word * 10 >> 64}"
    assert value.as_py() == (value_word >> 11) / 2**53
    assert abs(timestamp.value - micros) <= max(1, row >> 53)  # a double has 53 bits


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 2.0])
def test_keys_follow_zipf(skew):
    rows = read(rate(keys=20, skew=skew), 0, 200_000)
    weights = np.arange(1, 21) ** -skew
    expected = 200_000 * weights / weights.sum()
    counts = Counter(row[1] for row in rows)
    found = np.array([counts[f"key-{i}"] for i in range(20)])
    chi_squared = float(np.sum((found - expected) ** 2 / expected))
    assert chi_squared < 43.8  # the 0.1 % quantile of 19 degrees of freedom
    assert np.mean([row[2] for row in rows]) == pytest.approx(0.5, abs=0.005)


def test_other_seeds_give_other_rows():
    assert [row[1:] for row in read(rate(seed=1), 0, 100)] != [row[1:] for row in read(rate(seed=2), 0, 100)]


def test_the_pace_is_the_rate_and_there_is_no_end():
    now = [50.0]
    source = rate(clock=lambda: now[0])
    position = source.initial()
    assert source.latest(position, everything=False) == position
    now[0] += 2
    end = source.latest(position, everything=True)
    assert end == {"row": 2000, "epoch": position["epoch"]}
    assert source.lag(position) == 2000
    assert source.lag(end) == 0
    assert not source.exhausted(end)


def test_a_restart_goes_on_with_rows_and_times():
    now = [0.0]
    source = RateSource("s", 10, clock=lambda: now[0])
    position = {"row": 100, "epoch": 1_000_000}
    assert source.latest(position, everything=False) == position
    now[0] += 1
    end = source.latest(position, everything=False)
    assert end == {"row": 110, "epoch": 1_000_000}
    rows = [row for part in rows_of(source, position, end, 3) for row in part.rows]
    assert [row[0].timestamp() for row in rows] == pytest.approx([11 + i / 10 for i in range(10)])


def test_a_replay_of_the_first_batch_keeps_its_epoch():
    """After a crash in batch 0 its end is in the offset log, but its start is requested again."""
    logged = {"row": 5, "epoch": 77_000_000}
    source = RateSource("s", 1)
    rows = [row for part in rows_of(source, source.initial(), logged, 2) for row in part.rows]
    assert [row[0].timestamp() for row in rows] == [77, 78, 79, 80, 81]


def test_slices_of_any_size_are_batches_of_bounded_size():
    source = rate()
    (piece,) = source.slices({"row": 0, "epoch": 0}, {"row": 300_000, "epoch": 0}, 1)
    assert [batch.num_rows for batch in source.read(piece, "0-0")] == [131_072, 131_072, 37_856]
    assert len(Collected(source.read(piece, "0-0")).rows) == 300_000


def test_with_drift_other_keys_become_the_popular_ones():
    source = rate(keys=100, skew=1.5, drift=10.0)
    leaders = []
    for begin in range(0, 50_000, 10_000):
        periods = Counter(row[1] for row in read(source, begin, begin + 10_000))
        (leader, times), *_ = periods.most_common(1)
        assert times > 3000  # of 10,000, as often as the most popular of 100 keys by this law
        leaders.append(leader)
    assert len(set(leaders)) == 5
    assert leaders[0] == "key-0"


def test_event_times_follow_a_trace_of_rates():
    trace = RatePace(np.array([0.0, 2.0, 3.0]), np.array([10.0, 0.0, 100.0]))
    rows = read(RateSource("s", trace, start_time=START), 0, 30)
    seconds = [(row[0] - START).total_seconds() for row in rows]
    assert seconds == pytest.approx([i / 10 for i in range(21)] + [3 + i / 100 for i in range(1, 10)])


def test_a_batch_takes_at_most_what_the_capacity_allows():
    now = [0.0]
    source = rate(clock=lambda: now[0])
    position = source.initial()
    source.latest(position, everything=False)
    now[0] += 2
    assert source.latest(position, everything=False, most=300)["row"] == 300
    assert source.lag({"row": 300}) == 1700
    assert source.latest(position, everything=True, most=5000)["row"] == 2000
