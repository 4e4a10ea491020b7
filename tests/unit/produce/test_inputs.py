"""Files to send: their columns as they look or as they are declared, and what cannot be sent."""

import gzip
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.produce.records import file_input
from millrace_jobs.sources.formats.messages import RAW

CSV = 'city,fare,at,note\nParis,12.5,2024-05-01T10:00:00Z,\n"Bonn, am Rhein",7,2024-05-01T11:00:00Z,yes\n'
JSON = '{"city": "Paris", "fare": 12.5, "at": "2024-05-01T10:00:00Z"}\n\n{"city": "Bonn", "fare": 7}\n'


def opened(path, ddl=None, **options):
    settings = {"raw": False, "header": True, "delimiter": ",", "timestamp_format": "iso"}
    return file_input(path, ddl, **settings | options)


def rows(source):
    return [tuple(row.values()) for batch in source.records() for row in batch.to_pylist()]


def written(tmp_path, name, text):
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


@pytest.mark.parametrize("name", ["rides.csv", "rides.csv.gz"])
def test_a_csv_file_is_read_by_how_it_looks(tmp_path, name):
    ten, eleven = (datetime(2024, 5, 1, hour, tzinfo=UTC) for hour in (10, 11))
    assert rows(opened(written(tmp_path, name, CSV))) == [
        ("Paris", 12.5, ten, None),
        ("Bonn, am Rhein", 7.0, eleven, "yes"),
    ]


@pytest.mark.parametrize("name", ["rides.json", "rides.jsonl", "rides.ndjson.gz"])
def test_a_json_file_is_read_by_how_it_looks(tmp_path, name):
    assert rows(opened(written(tmp_path, name, JSON))) == [
        ("Paris", 12.5, datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("Bonn", 7.0, None),
    ]


def test_a_parquet_file_is_read_with_its_types(tmp_path):
    times = pa.array([datetime(2024, 5, 1), None], pa.timestamp("ms"))
    table = pa.table({"n": pa.array([1, 2], pa.int16()), "at": times, "s": pa.array(["x", "y"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "some.parquet")
    assert rows(opened(tmp_path / "some.parquet")) == [(1, datetime(2024, 5, 1, tzinfo=UTC), "x"), (2, None, "y")]


def test_binary_columns_of_every_layout_can_be_sent(tmp_path):
    kinds = {"large": pa.large_binary(), "fixed": pa.binary(2), "plain": pa.binary()}
    table = pa.table({name: pa.array([b"ab", None], kind) for name, kind in kinds.items()})
    pq.write_table(table, tmp_path / "some.parquet")
    source = opened(tmp_path / "some.parquet")
    assert set(source.schema.types) == {pa.binary()}
    assert rows(source) == [(b"ab",) * 3, (None,) * 3]


def test_declared_columns_come_before_how_they_look(tmp_path):
    file = written(tmp_path, "rides.csv", "id|at\n007|1714557600\n")
    source = opened(file, "id STRING, at TIMESTAMP", delimiter="|", timestamp_format="seconds")
    assert rows(source) == [("007", datetime(2024, 5, 1, 10, tzinfo=UTC))]
    bare = written(tmp_path, "bare.csv", "007|1714557600\n")
    assert rows(opened(bare, "id INT, at BIGINT", delimiter="|", header=False)) == [(7, 1714557600)]


def test_raw_lines_are_read_as_they_are(tmp_path):
    source = opened(written(tmp_path, "lines.csv", "a,b\r\n\n  \r\nc\rd\r\r\n\re\nlast"), raw=True)
    assert source.schema == RAW
    assert rows(source) == [(b"a,b",), (b"c\rd\r",), (b"\re",), (b"last",)]


def test_many_records_come_in_order(tmp_path):
    file = written(tmp_path, "many.csv", "n\n" + "".join(f"{n}\n" for n in range(300_000)))
    assert [row[0] for row in rows(opened(file))] == list(range(300_000))


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("a.txt", "", {}, "its extension is not that of a known format; name it *.csv"),
        ("a.csv", "", {}, "cannot be read as csv: Empty CSV file; give its columns with --schema"),
        (
            "a.csv",
            "1,2\n",
            {"header": False},
            "a csv file without a header does not name its columns; give its columns with --schema",
        ),
        ("a.json", "[1]\n", {}, "cannot be read as json: "),
        ("a.json", '{"a": [1]}\n', {}, "column a is of type list<item: int64>, which no source can read"),
        ("a.parquet", "no parquet", {}, "cannot be read as parquet: "),
        ("a.parquet", "", {"raw": True}, "has no lines to send"),
    ],
)
def test_what_cannot_be_sent_is_said_before_anything_is(tmp_path, name, text, options, said):
    with pytest.raises(MillraceError) as error:
        opened(written(tmp_path, name, text), **options)
    assert str(error.value).startswith(f"{tmp_path / name}: {said}"), error.value


@pytest.mark.parametrize("delimiter", ["", ";;", "\\t", "é", '"'])
def test_a_delimiter_is_one_character_of_ascii(tmp_path, delimiter):
    file = written(tmp_path, "a.csv", CSV)
    for ddl in (None, "city STRING"):
        with pytest.raises(MillraceError, match=r"delimiter .* cannot be used; write one character such as"):
            opened(file, ddl, delimiter=delimiter)


def test_declared_columns_do_not_help_a_broken_parquet_file(tmp_path):
    with pytest.raises(MillraceError, match=r"it begins with b'no p', not with b'PAR1'; name the format"):
        opened(written(tmp_path, "a.parquet", "no parquet"))


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(MillraceError, match=r"none.csv: there is no such file"):
        opened(tmp_path / "none.csv")


def test_a_line_that_is_no_record_is_an_error_with_its_place(tmp_path):
    file = written(tmp_path, "a.csv", "n\n1\nx\n")
    with pytest.raises(
        MillraceError, match=r"a.csv:3: 'x' is not a record: .*; correct it, or give the columns with --schema"
    ):
        rows(opened(file, "n INT"))


def test_types_that_sources_do_not_have_are_sent_as_ones_that_hold_them(tmp_path):
    table = pa.table(
        {
            "large": pa.array([2**64 - 1], pa.uint64()),
            "small": pa.array([255], pa.uint8()),
            "half": pa.array([1.5], pa.float32()).cast(pa.float16()),
            "clock": pa.array([3_600_000], pa.time32("ms")),
            "id": pa.array([bytes(range(16))], pa.uuid()),
        }
    )
    pq.write_table(table, tmp_path / "some.parquet")
    source = opened(tmp_path / "some.parquet")
    assert rows(source) == [(2**64 - 1, 255, 1.5, "01:00:00.000", "00010203-0405-0607-0809-0a0b0c0d0e0f")]
    pq.write_table(pa.table({"tags": [["a"]]}), tmp_path / "some.parquet")
    with pytest.raises(MillraceError, match="column tags is of type list<element: string>, which no source can read"):
        opened(tmp_path / "some.parquet")
