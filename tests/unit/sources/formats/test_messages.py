"""From message values to records: JSON, CSV and raw; every message is a record, is rejected, or has no value."""

import json
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.sources.formats.messages import RawDecoder, TextDecoder
from millrace_jobs.sources.kafka.message_records import METADATA, metadata_columns
from record_tables import BAD_LINES, FORMATS, ROWS, SCHEMA, line_of


def decoder(file_format):
    made = TextDecoder(file_format, SCHEMA, "iso")
    return pickle.loads(pickle.dumps(made))


def decoded(file_format, values):
    """The rows with the index of their message, and the reasons by index."""
    bad = {}
    records, origins = decoder(file_format).decode(values, lambda index, reason: bad.update({index: reason}))
    records.validate(full=True)
    rows = list(zip(*records.to_pydict().values(), strict=True))
    return list(zip(origins.tolist(), rows, strict=True)), bad


BAD = {
    "json": [*BAD_LINES["json"], "", "  ", "\n", '{"count":\n"1"}', "{}\n{}", "\ufeff{}"],
    "csv": [*BAD_LINES["csv"], "", "  ", "\n", "\r\n", 'a,1,2.0,true\nb,2,3.0,false', '"a\nb",1,2.0', "a,1\r,2.0,true"],
}  # fmt: skip


@pytest.mark.parametrize("file_format", FORMATS)
@given(rows=ROWS, data=st.data())
def test_good_messages_are_read_in_any_mixture_with_bad_and_absent_ones(file_format, rows, data):
    expected, values = [], []
    for row in rows:
        while data.draw(st.booleans()):
            values.append(data.draw(st.none() | st.sampled_from(BAD[file_format]).map(str.encode)))
        line = line_of(row, file_format)
        if file_format == "json" and data.draw(st.booleans()):
            line = json.dumps(json.loads(line), indent=2, ensure_ascii=False)
        expected.append((len(values), row))
        values.append((line + data.draw(st.sampled_from(["", "\n", "\r\n"]))).encode())
    found, bad = decoded(file_format, values)
    assert found == expected
    assert sorted([index for index, _ in found] + list(bad)) == [i for i, v in enumerate(values) if v is not None]


@pytest.mark.parametrize("file_format", FORMATS)
def test_each_bad_message_is_rejected_with_a_reason(file_format):
    for text in BAD[file_format]:
        found, bad = decoded(file_format, [text.encode()])
        assert found == []
        assert list(bad) == [0], text
        assert bad[0], text


def test_bytes_that_are_no_text_are_rejected():
    found, bad = decoded("json", [b'{"name": "a\xff"}', b'{"name": "b"}'])
    assert [row[0] for _, row in found] == ["b"]
    assert bad[0].startswith("invalid UTF-8: ")


def test_no_messages_and_only_tombstones_are_no_records():
    for values in ([], [None], [None, None]):
        for file_format in FORMATS:
            assert decoded(file_format, values) == ([], {})


def test_csv_messages_may_end_with_a_line_break():
    found, bad = decoded("csv", [b"a,1,2.0,true\n", b'"b,c",2,3.0,false\r\n', b"d,3,4.0,true"])
    assert [row[0] for _, row in found] == ["a", "b,c", "d"]
    assert bad == {}


def test_a_line_break_between_quotes_is_part_of_a_csv_message():
    values = [b'"a\n\nb",1,2.0,true', b"c,x,2.0,true", b'"d\r\n",3,4.0,true\r\n', b'"e" ,5,6.0,true']
    found, bad = decoded("csv", values)
    assert [(index, row[0]) for index, row in found] == [(0, "a\n\nb"), (2, "d\r\n"), (3, "e")]
    assert list(bad) == [1]


def test_messages_do_not_complete_each_other():
    found, bad = decoded("csv", [b'"a', b'b",1,2.0,true\nc,3,4.0,true', b"d,5,6.0,true"])
    assert [index for index, _ in found] == [2]
    assert list(bad) == [0, 1]


def test_a_line_break_within_a_text_of_json_is_not_a_blank():
    found, bad = decoded("json", [b'{"name":\n"a"}', b'{"name": "a\nb"}'])
    assert [row[0] for _, row in found] == ["a"]
    assert bad == {1: "invalid JSON: Invalid encoding in string."}


def test_reasons_of_csv_say_where_the_line_break_is():
    _, bad = decoded("csv", [b"a,1,2.0,true\nb,2,3.0,true"])
    assert bad == {0: "there is a line break inside the record"}


@given(st.lists(st.binary(max_size=20) | st.none(), max_size=20))
def test_raw_is_the_value_itself_also_where_there_is_none(values):
    records, origins = RawDecoder().decode(values, lambda *_: pytest.fail("raw rejects nothing"))
    assert records.schema == pa.schema([("value", pa.binary())])
    assert records.column(0).to_pylist() == values
    assert origins.tolist() == list(range(len(values)))


def test_a_time_that_no_timestamp_holds_is_null():
    first, last = -62_135_596_800_000, 253_402_300_799_999
    kept = {
        first: datetime(1, 1, 1, tzinfo=UTC),
        0: datetime(1970, 1, 1, tzinfo=UTC),
        last: datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    }
    beyond = [first - 1, last + 1, 1_700_000_000_000_000_000, 2**63 - 1, -(2**63)]
    times = [(TIMESTAMP_CREATE_TIME, time) for time in (*kept, *beyond)] + [(TIMESTAMP_NOT_AVAILABLE, 0)]
    messages = [Message("trips", 0, i, None, b"", None, None, time) for i, time in enumerate(times)]
    columns = pa.RecordBatch.from_arrays(metadata_columns(messages), schema=METADATA)
    assert columns.column("_timestamp").to_pylist() == [*kept.values(), *([None] * (len(beyond) + 1))]
