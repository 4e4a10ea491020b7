import gzip
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.benchmark.reading import NO_TIME, read_stream
from millrace_jobs.partitioners.hashing import NULL, hash_columns

T = datetime(2024, 1, 1, 10, tzinfo=UTC)
MICROS = 1_704_103_200_000_000
CSV = "at,who,n,more\n2024-01-01T10:00:00Z,a,1,x\n2024-01-01T11:00:00.5+01:00,b,01,y\n,,,\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def hashes(values, kind=None):
    return hash_columns([pa.array(values, kind)], len(values)).tolist()


def test_csv(write):
    stream = read_stream(write("s.csv", CSV), ["who"], "at")
    assert stream.hashes.tolist() == hashes(["a", "b", None])
    assert stream.micros.tolist() == [MICROS, MICROS + 500_000, NO_TIME]
    assert stream.hashing_seconds >= 0


def test_keys_of_csv_are_told_apart_by_their_text(write):
    assert read_stream(write("s.csv", CSV), ["n"], None).hashes.tolist() == hashes(["1", "01", None])
    assert read_stream(write("s.csv", "k\nNA\nnan\n007\n"), ["k"], None).hashes.tolist() == hashes(["NA", "nan", "007"])


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".ndjson"])
def test_json_lines(write, suffix):
    lines = '{"at": "2024-01-01T10:00:00Z", "who": "a"}\n{"at": null, "who": null, "more": {"x": 1}}\n'
    stream = read_stream(write(f"s{suffix}", lines), ["who"], "at")
    assert stream.hashes.tolist() == hashes(["a", None])
    assert stream.micros.tolist() == [MICROS, NO_TIME]


def test_compressed_files(write):
    assert len(read_stream(write("s.csv.gz", gzip.compress(CSV.encode())), ["who"], "at").hashes) == 3
    assert len(read_stream(write("s.json.gz", gzip.compress(b'{"k": 1}\n')), ["k"], None).hashes) == 1


def test_parquet_with_a_composite_key_and_keys_that_are_null_or_nan(write):
    file = write("s.parquet", {"a": [1, None, 1], "b": [0.5, float("nan"), None]})
    stream = read_stream(file, ["a", "b"], None)
    columns = [pa.array([1, None, 1], pa.int64()), pa.array([0.5, float("nan"), None])]
    assert stream.hashes.tolist() == hash_columns(columns, 3).tolist()
    assert len(set(stream.hashes.tolist())) == 3
    assert read_stream(file, ["a"], None).hashes[1] == NULL
    assert stream.micros is None


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([T, None]), [MICROS, NO_TIME]),
        (pa.array([T.replace(tzinfo=None), None], pa.timestamp("ns")), [MICROS, NO_TIME]),
        (pa.array([date(2024, 1, 1), None]), [MICROS - 36_000_000_000, NO_TIME]),
        (pa.array([1_704_103_200, None]), [MICROS, NO_TIME]),
        (pa.array([1_704_103_200.5, float("nan")]), [MICROS + 500_000, NO_TIME]),
        (pa.array([Decimal("1704103200.25"), None]), [MICROS + 250_000, NO_TIME]),
        (pa.array(["1704103200", None]), [MICROS, NO_TIME]),
        (pa.array(["2024-01-01 10:00:00", None], pa.large_string()), [MICROS, NO_TIME]),
        (pa.array([-1, 0]), [-1_000_000, 0]),
    ],
)
def test_times(write, times, expected):
    stream = read_stream(write("s.parquet", {"at": times, "k": [1, 2]}), ["k"], "at")
    assert stream.micros.tolist() == expected
    assert stream.micros.dtype == np.int64


def test_the_time_may_be_the_key(write):
    stream = read_stream(write("s.csv", CSV), ["at"], "at")
    assert len(stream.hashes) == len(stream.micros) == 3


@pytest.mark.parametrize(
    ("name", "content", "keys", "time", "said"),
    [
        ("s.csv", CSV, ["whom"], None, "s.csv: has no column whom; its columns are at, who, n, more"),
        ("s.csv", CSV, ["who"], "when", "s.csv: has no column when; its columns are at, who, n, more"),
        ("s.csv", "k,k\n1,2\n", ["k"], None, "has the column k more than once; name every column once"),
        ("s.csv", "k\n", ["k"], None, "s.csv: has no records; give a file with at least one"),
        ("s.csv", "", ["k"], None, "has no records"),
        ("s.json", "", ["k"], None, "has no records"),
        ("s.csv", "k,n\n1\n", ["k"], None, "s.csv: cannot be read: "),
        ("s.csv", b"k\n\xff\n", ["k"], None, "s.csv: cannot be read: "),
        ("s.csv.gz", b"no gzip", ["k"], None, "s.csv.gz: cannot be read: "),
        ("s.json", "[1, 2]", ["k"], None, "s.json: cannot be read: "),
        ("s.json", '{"k": 1}\n{"k": "a"}\n', ["k"], None, "s.json: cannot be read: "),
        ("s.json", '{"k": [1]}\n', ["k"], None, "cannot be partitioned by k: a column of type list"),
        ("s.json", '{"k": 1, "at": null}\n', ["k"], "at", "has no value in the time column at"),
        ("s.parquet", b"no parquet", ["k"], None, "s.parquet: cannot be read: "),
        ("s.parquet", {"k": [1]}, ["key"], None, "has no column key; its columns are k"),
        ("s.parquet", {"k": pa.array([], pa.int64())}, ["k"], None, "has no records"),
        ("s.parquet", {"k": [1], "at": [True]}, ["k"], "at", "has bool in the time column at; give timestamps"),
        ("s.parquet", {"k": [1], "at": [float("inf")]}, ["k"], "at", "has no value in the time column at"),
        ("s.parquet", {"k": [1], "at": [1_704_103_200_000]}, ["k"], "at", "outside the years 1 to 9999 when read as"),
        ("s.parquet", {"k": [1], "at": [2**62]}, ["k"], "at", "column at (TIMESTAMP): "),
        ("s.csv", "k,at\n1,soon\n", ["k"], "at", "is not an ISO 8601 timestamp; give timestamps, text in ISO 8601"),
        ("s.csv", "k,at\n1,\n", ["k"], "at", "has no value in the time column at"),
        ("s.txt", "k\n1\n", ["k"], None, "s.txt: the format of a file .txt is not known; name it *.csv"),
        ("s", "k\n1\n", ["k"], None, "the format of a file without an extension is not known"),
        ("s.parquet.gz", b"", ["k"], None, "the format of a file .gz is not known"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(write, name, content, keys, time, said):
    with pytest.raises(MillraceError) as error:
        read_stream(write(name, content), keys, time)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    for name in ("gone.csv", "gone.parquet", "gone.json"):
        with pytest.raises(MillraceError, match=f"{name}: there is no such file; check the path"):
            read_stream(tmp_path / name, ["k"], None)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(MillraceError, match="there is no such file"):
        read_stream(tmp_path / "folder.csv", ["k"], None)
