"""Which messages a batch sends to a table, for any sequence of batches."""

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.sinks.kafka.live_rows import LiveRows
from millrace_jobs.sinks.kafka.messages import NO_END
from millrace_jobs.sinks.kafka.topic import LastWritten, TableOrigin

from .live_batches import messages_of

MS = 1000
ORIGIN = TableOrigin("a topic", {})


class Table:
    """A topic and the sink that writes it."""

    def __init__(self, sent=()):
        self.sent = list(sent)
        self.live = LiveRows()
        read = ((key, None if value is None else int(key[1:]) * MS) for key, value in self.sent)
        self.live.rebuild(ORIGIN, LastWritten(), read)
        self._batch = 0

    def close(self):
        self.live.close()

    def batch(self, *rows, watermark=0):
        """Messages of a batch of rows ``(key, value, end in ms)``."""
        rows = ((key, value, end if end == NO_END else end * MS) for key, value, end in rows)
        written = LastWritten(self._batch, self._batch)
        messages = [(key, value) for key, value, *_ in messages_of(self.live, rows, written, watermark)]
        self._batch += 1
        self.sent.extend(messages)
        return messages

    @property
    def rows(self):
        table = {}
        for key, value in self.sent:
            if value is None:
                del table[key]  # no tombstone without a row
            else:
                table[key] = value
        return table


@pytest.fixture
def table():
    with closing(Table()) as opened:
        yield opened


def test_an_update_replaces_the_row(table):
    assert table.batch(("a", "1", NO_END), ("b", "1", NO_END)) == [("a", "1"), ("b", "1")]
    assert table.batch(("a", "2", NO_END)) == [("a", "2")]
    assert table.rows == {"a": "2", "b": "1"}


def test_only_a_row_that_is_there_is_retracted(table):
    assert table.batch(("a", None, NO_END)) == []
    table.batch(("a", "1", NO_END))
    assert table.batch(("a", None, NO_END)) == [("a", None)]
    assert table.batch(("a", None, NO_END)) == []
    assert table.batch(("a", "2", NO_END)) == [("a", "2")]


def test_a_row_expires_when_the_watermark_reaches_the_end_of_its_window(table):
    table.batch(("a", "1", 10), ("b", "1", 20), ("c", "1", NO_END))
    assert table.batch(watermark=9) == []
    assert table.batch(watermark=10) == [("a", None)]
    assert table.batch(watermark=10) == []
    assert table.batch(watermark=10**9) == [("b", None)]
    assert table.rows == {"c": "1"}


def test_the_last_update_of_a_window_is_sent_before_the_row_expires(table):
    table.batch(("a", "1", 10))
    assert table.batch(("a", "2", 10), ("b", "1", 10), watermark=10) == [
        ("a", "2"),
        ("b", "1"),
        ("a", None),
        ("b", None),
    ]
    assert len(table.live) == 0


def test_a_row_retracted_in_the_batch_in_which_it_expires_gets_one_tombstone(table):
    table.batch(("a", "1", 10))
    assert table.batch(("a", None, 10), watermark=10) == [("a", None)]


rows = st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, "x", "y"]), st.integers(1, 8))
batches = st.lists(st.tuples(st.lists(rows, unique_by=lambda row: row[0]), st.integers(0, 8)), max_size=12)


@given(batches)
def test_the_table_is_what_was_admitted_last_and_has_not_ended(batches):
    expected, watermark = {}, 0
    with closing(Table()) as table:
        for results, later in batches:
            watermark = max(watermark, later)
            keyed = [(f"{key}{end}", value, end) for key, value, end in results]
            expected |= {key: (value, end) for key, value, end in keyed}
            table.batch(*keyed, watermark=watermark)
            there = {key: value for key, (value, end) in expected.items() if value is not None and end > watermark}
            assert table.rows == there
            assert len(table.live) == len(there)
            expected = {key: row for key, row in expected.items() if row[1] > watermark}


@settings(max_examples=25)  # each makes a copy for every batch
@given(batches)
def test_rows_learnt_from_the_topic_lead_to_the_same_messages(batches):
    with closing(Table()) as table:
        for results, watermark in batches:
            keyed = [(f"{key}{end}", value, end) for key, value, end in results]
            with closing(Table(table.sent)) as again:
                assert table.batch(*keyed, watermark=watermark) == again.batch(*keyed, watermark=watermark)
