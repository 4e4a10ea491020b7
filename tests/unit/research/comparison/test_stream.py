from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.partitioners.key_hashes import NULL, hash_columns
from millrace_research.comparison.stream import NO_TIME, Spans, Stream, cut, parse_spans, read_stream

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


def test_a_stream_is_read_from_csv(write):
    stream = read_stream(write("s.csv", CSV), ["who"], "at")
    assert stream.hashes.tolist() == hashes(["a", "b", None])
    assert stream.micros.tolist() == [MICROS, MICROS + 500_000, NO_TIME]
    assert stream.hashing_seconds >= 0


def test_keys_of_csv_are_told_apart_by_their_text(write):
    assert read_stream(write("s.csv", CSV), ["n"], None).hashes.tolist() == hashes(["1", "01", None])
    assert read_stream(write("s.csv", "k\nNA\nnan\n007\n"), ["k"], None).hashes.tolist() == hashes(["NA", "nan", "007"])


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".ndjson"])
def test_a_stream_is_read_from_lines_of_json(write, suffix):
    lines = '{"at": "2024-01-01T10:00:00Z", "who": "a"}\n{"at": null, "who": null, "more": {"x": 1}}\n'
    stream = read_stream(write(f"s{suffix}", lines), ["who"], "at")
    assert stream.hashes.tolist() == hashes(["a", None])
    assert stream.micros.tolist() == [MICROS, NO_TIME]


def test_a_stream_is_read_from_compressed_files(write):
    assert len(read_stream(write("s.csv.gz", gzip.compress(CSV.encode())), ["who"], "at").hashes) == 3
    assert len(read_stream(write("s.json.gz", gzip.compress(b'{"k": 1}\n')), ["k"], None).hashes) == 1


def test_a_composite_key_from_parquet_may_be_null_or_nan(write):
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
        (pa.array(["2024-01-01 10:00:00", None]).dictionary_encode(), [MICROS, NO_TIME]),
        (pa.array([-1, 0]), [-1_000_000, 0]),
    ],
)
def test_times_of_every_kind_are_read_as_microseconds(write, times, expected):
    stream = read_stream(write("s.parquet", {"at": times, "k": [1, 2]}), ["k"], "at")
    assert stream.micros.tolist() == expected
    assert stream.micros.dtype == np.int64


def test_times_of_spark_s_old_type_in_parquet_do_not_wrap(tmp_path):
    times = pa.array([datetime(1601, 1, 1), datetime(2300, 6, 1)], pa.timestamp("us"))
    pq.write_table(pa.table({"at": times, "k": [1, 2]}), tmp_path / "s.parquet", use_deprecated_int96_timestamps=True)
    stream = read_stream(tmp_path / "s.parquet", ["k"], "at")
    assert stream.micros.tolist() == [-11_644_473_600_000_000, 10_426_838_400_000_000]


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
        ("s.parquet", b"no parquet", ["k"], None, "s.parquet: cannot be read as parquet: it begins with "),
        ("s.parquet", {"k": [1]}, ["key"], None, "has no column key; its columns are k"),
        ("s.parquet", {"k": pa.array([], pa.int64())}, ["k"], None, "has no records"),
        ("s.parquet", {"k": [1], "at": [True]}, ["k"], "at", "has bool in the time column at; give timestamps"),
        ("s.parquet", {"k": [1], "at": [float("inf")]}, ["k"], "at", "has no value in the time column at"),
        ("s.parquet", {"k": [1], "at": [1_704_103_200_000]}, ["k"], "at", "outside the years 1 to 9999 when read as"),
        ("s.parquet", {"k": [1], "at": [2**62]}, ["k"], "at", "column at (TIMESTAMP): "),
        (
            "s.csv",
            "k,at\n1,soon\n",
            ["k"],
            "at",
            "is not an ISO 8601 timestamp: write it like 2024-05-01T12:30:00Z, or set timeFormats to its pattern; give",
        ),
        ("s.csv", "k,at\n1,\n", ["k"], "at", "has no value in the time column at"),
        ("s.txt", "k\n1\n", ["k"], None, "s.txt: the extension .txt is not that of a known format; name it *.csv"),
        ("s", "k\n1\n", ["k"], None, "s: the name has no extension; name it *.csv"),
        ("s.parquet.gz", b"", ["k"], None, "the extension .parquet.gz is not that of a known format"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(write, name, content, keys, time, said):
    with pytest.raises(MillraceError) as error:
        read_stream(write(name, content), keys, time)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path):
    for name in ("gone.csv", "gone.parquet", "gone.json"):
        with pytest.raises(MillraceError, match=f"{name}: there is no such file; check the path"):
            read_stream(tmp_path / name, ["k"], None)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(MillraceError, match="there is no such file"):
        read_stream(tmp_path / "folder.csv", ["k"], None)


def stream(micros=None, rows=None):
    times = None if micros is None else np.array(micros, np.int64)
    return Stream(np.zeros(len(micros) if rows is None else rows, np.uint64), times, 0.0)


def spans(slide, window=None, *, timed=True):
    return Spans(slide if window is None else window, slide, timed)


def test_windows_and_slides_are_lengths_of_time_or_records():
    assert parse_spans("10m", "60s", timed=True) == Spans(600_000_000, 60_000_000, True)
    assert parse_spans("10m", "60s", timed=True).slides == 10
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
            "--window 60 is not a duration longer than zero; with --time, write whole numbers, each with a unit",
        ),
        ("60s", "0s", True, "--slide 0s is not a duration longer than zero"),
        ("60s", "60s", False, "--window 60s is not a number of records; write a whole number of at least 1, or name"),
        ("0", "0", False, "--window 0 is not a number of records"),
        ("-5", "5", False, "--window -5 is not a number of records"),
        ("9" * 5000, "5", False, "is not a number of records"),
        ("1d", "1us", True, "is 86,400,000,000 slides of 1us long; write a longer --slide: at most 100,000"),
    ],
)
def test_bad_lengths_are_refused(window, slide, timed, said):
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


def test_too_many_slides_are_refused():
    with pytest.raises(MillraceError, match="--slide cuts the input into 100,001 slides; write a longer --slide"):
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
