"""The auction site: rows that depend on seed and number alone, and streams that belong together."""

import itertools
import pickle
from collections import Counter
from datetime import UTC, datetime

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.model.generators import NexmarkSourceSpec as NexmarkSpec
from millrace_api.model.generators import NexmarkStream
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.connector import open_source, schema_of
from millrace_jobs.sources.generated.nexmark import NexmarkSource, share
from millrace_jobs.sources.generated.rows import GeneratedRows
from millrace_jobs.sources.pacing import RatePace

START = datetime(2024, 5, 1, tzinfo=UTC)
STREAMS = ("person", "auction", "bid")
EVENTS_PER_SECOND = 1000


def site(stream, rate=EVENTS_PER_SECOND, **options):
    schema = schema_of(SourceSpec(nexmark=NexmarkSpec(stream=NexmarkStream(stream))))
    return NexmarkSource(stream, schema, stream, rate, start_time=START, **options)


def table(source, begin, end):
    batches = []
    for batch in source.read(GeneratedRows(begin, end, source.initial()["epoch"]), "0-0"):
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, source.schema)


def answers(events, sql, **options):
    """Rows of a query over the three streams' parts of the first events."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for stream in STREAMS:
            source = site(stream, **options)
            connection.register(stream, table(source, 0, round(events * share(stream))))
        return connection.execute(sql).fetchall()


@settings(max_examples=30)
@given(
    stream=st.sampled_from(STREAMS),
    begin=st.integers(0, 10**9),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 2**53),
    skew=st.floats(0, 3),
    drift=st.none() | st.floats(0.1, 100),
)
def test_any_cut_gives_the_same_rows(stream, begin, cuts, seed, skew, drift):
    source = site(stream, seed=seed, skew=skew, drift=drift)
    ends = np.cumsum([begin, *cuts]).tolist()
    together = table(source, ends[0], ends[-1])
    assert pa.concat_tables(table(source, a, b) for a, b in itertools.pairwise(ends)).equals(together)
    assert table(pickle.loads(pickle.dumps(source)), ends[0], ends[-1]).equals(together)


@pytest.mark.parametrize("stream", STREAMS)
def test_other_seeds_give_other_rows_of_the_same_times(stream):
    one, other = (table(site(stream, seed=seed), 0, 500) for seed in (1, 2))
    assert one.column("date_time").equals(other.column("date_time"))
    differing = [name for name in one.column_names if not one.column(name).equals(other.column(name))]
    assert set(differing) == set(one.column_names) - {"id", "date_time"}


def test_of_fifty_events_one_is_a_person_three_are_auctions_the_rest_bids():
    found = answers(
        5000,
        """SELECT epoch_us(date_time) - epoch_us(TIMESTAMP '2024-05-01') AS moment, stream FROM (
               SELECT date_time, 'person' AS stream FROM person UNION ALL
               SELECT date_time, 'auction' FROM auction UNION ALL SELECT date_time, 'bid' FROM bid) ORDER BY moment""",
    )
    assert [moment for moment, _ in found] == [1000 * event for event in range(5000)]
    assert "".join(stream[0] for _, stream in found) == ("p" + 3 * "a" + 46 * "b") * 100


def test_records_refer_to_people_and_auctions_that_were_there_before():
    for options in ({}, {"skew": 1.5}, {"skew": 0.8, "drift": 7.0}):
        assert answers(
            100_000,
            """SELECT count(*), count(*) FILTER (a.date_time < b.date_time), count(*) FILTER (p.date_time < b.date_time)
               FROM bid b LEFT JOIN auction a ON b.auction = a.id LEFT JOIN person p ON b.bidder = p.id""",
            **options,
        ) == [(92_000, 92_000, 92_000)]
        assert answers(
            100_000,
            """SELECT count(*), count(*) FILTER (p.date_time < a.date_time) FROM auction a
               LEFT JOIN person p ON a.seller = p.id""",
            **options,
        ) == [(6000, 6000)]


def test_values_lie_where_the_benchmark_has_them():
    ((low, high, median, known, channels),) = answers(
        200_000,
        """SELECT min(price), max(price), median(price), count(*) FILTER (channel NOT LIKE 'channel-%') / count(*),
                  count(DISTINCT channel) FROM bid""",
    )
    assert (100 <= low < 200, 90_000_000 < high <= 100_000_000) == (True, True)
    assert median == pytest.approx(100_000, rel=0.1)  # 10^3 in the middle of 10^0 to 10^6, in cents
    assert known == pytest.approx(0.5, abs=0.01)
    assert channels == 10_004
    ((categories, least, most, reserved, length),) = answers(
        200_000,
        """SELECT count(DISTINCT category), min(category), max(category), count(*) FILTER (reserve > initial_bid),
                  avg(epoch_us(expires) - epoch_us(date_time)) / 1e6 FROM auction""",
    )
    assert (categories, least, most, reserved) == (5, 10, 14, 12_000)
    assert length == pytest.approx(100 / 60, rel=0.05)  # 100 auctions are open, and 60 begin in a second
    ((people, cards, mails),) = answers(
        200_000,
        r"""SELECT count(DISTINCT id), count(*) FILTER (regexp_full_match(credit_card, '\d{4}( \d{4}){3}')),
                   count(DISTINCT email_address) FROM person""",
    )
    assert (people, cards, mails) == (4000, 4000, 4000)


@pytest.mark.parametrize(("stream", "bytes"), [("person", 200), ("auction", 500), ("bid", 190)])
def test_records_are_about_as_large_as_in_the_benchmark(stream, bytes):
    records = table(site(stream), 0, 5000)
    assert records.nbytes / 5000 == pytest.approx(bytes, rel=0.15)


def test_without_skew_bids_are_on_all_recent_auctions_alike():
    records = table(site("bid"), 460_000, 462_300)
    auctions = records.column("auction").to_numpy() - 1000
    ends = 3 * (np.arange(460_000, 462_300) // 46 + 1)
    ages = ends - 1 - auctions
    assert (ages.min(), ages.max()) == (0, 99)
    assert np.mean(ages) == pytest.approx(49.5, abs=3)


def test_with_skew_popularity_follows_zipf():
    records = table(site("bid", skew=1.0, drift=1000.0), 46_000_000, 46_100_000)
    counts = sorted(Counter(records.column("auction").to_pylist()).values(), reverse=True)
    harmonic = np.sum(1 / np.arange(1, 60_001))
    assert counts[:5] == pytest.approx([100_000 / harmonic / rank for rank in (1, 2, 3, 4, 5)], rel=0.1)


def test_the_popular_ones_stay_so_for_the_time_of_the_drift():
    source = site("bid", skew=1.5, drift=20.0)
    leaders = []
    for second in range(40, 100):
        begin = second * 920
        auctions = Counter(table(source, begin, begin + 920).column("auction").to_pylist())
        leaders.append(auctions.most_common(1)[0][0])
    assert [len(list(group)) for _, group in itertools.groupby(leaders)] == [20, 20, 20]


def test_the_streams_keep_pace_with_one_another():
    now = [0.0]
    sources = {stream: site(stream, clock=lambda: now[0]) for stream in STREAMS}
    for source in sources.values():
        source.latest(source.initial(), everything=False)
    now[0] += 10
    ends = {stream: source.latest(source.initial(), everything=True)["row"] for stream, source in sources.items()}
    assert ends == {"person": 200, "auction": 600, "bid": 9200}
    assert sources["bid"].latest(sources["bid"].initial(), everything=False, most=50)["row"] == 50


def test_event_times_follow_a_trace_of_rates():
    trace = RatePace(np.array([0.0, 1.0]), np.array([50.0, 500.0]))
    (before, after) = table(site("person", trace), 0, 2).column("date_time").to_pylist()
    assert (before - START).total_seconds() == 0
    assert (after - START).total_seconds() == 1
    tenth = table(site("person", trace), 10, 11).column("date_time")[0].as_py()
    assert (tenth - START).total_seconds() == pytest.approx(1 + 450 / 500)


def test_a_query_gets_the_stream_it_asks_for(tmp_path):
    spec = SourceSpec.model_validate(
        {"nexmark": {"stream": "auction", "recordsPerSecond": 3000, "skew": 1, "drift": "5s"}}
    )
    source = open_source("auctions", spec, tmp_path, tmp_path)
    assert source.schema.names[:2] == ["id", "item_name"]
    piece = GeneratedRows(0, 10, round(START.timestamp() * 1e6))
    (found,) = source.read(piece, "0-0")
    assert pa.Table.from_batches([found]).equals(table(site("auction", 3000, skew=1, drift=5.0), 0, 10))
