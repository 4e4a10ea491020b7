"""A batch of files cut into slices: every record once and in order, equal slices, bad records exact."""

import gzip
import json
import pickle
import tempfile
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats import file_formats, parquet_format
from record_tables import BAD_LINES, FORMATS, ROWS, ROWS_OF_LINES, SCHEMA, Collected, all_rows, line_of, rows_of

REPLICAS = range(1, 8)


def write(folder, name, lines, *, compressed=False, line_end="\n", ended=True, mark=b""):
    """A text file; the longest line's bytes."""
    text = mark + (line_end.join(lines) + (line_end if ended and lines else "")).encode()
    Path(folder, name).write_bytes(gzip.compress(text) if compressed else text)
    return max((len(line.encode()) + len(line_end) for line in lines), default=0)


def open_files(folder, file_format, *, log="log", **options):
    (Path(folder) / "in").mkdir(exist_ok=True)
    return FilesSource("s", str(Path(folder, "in")), file_format, SCHEMA, str(Path(folder, log)), **options)


@pytest.mark.parametrize("file_format", FORMATS)
@given(
    tables=st.lists(ROWS_OF_LINES, min_size=1, max_size=4),
    header=st.booleans(),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    ended=st.booleans(),
    compressed=st.sampled_from([None, 0, 1]),
    block_bytes=st.integers(1, 300),
)
def test_every_record_of_text_comes_once_and_in_order(
    file_format, tables, header, mark, line_end, ended, compressed, block_bytes
):
    header = header and file_format == "csv"
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(file_formats, "BLOCK_BYTES", block_bytes):
        source = open_files(folder, file_format, header=header)
        longest = 0
        for i, rows in enumerate(tables):
            lines = [",".join(SCHEMA.names)] * header + [line_of(row, file_format) for row in rows]
            name = f"in/{i}.txt" + (".gz" if i == compressed else "")
            length = write(folder, name, lines, compressed=i == compressed, line_end=line_end, ended=ended, mark=mark)
            longest = max(longest, length)
        end = source.latest(source.initial(), everything=True)
        expected = [row for rows in tables for row in rows]
        for replicas in REPLICAS:
            slices = source.slices(source.initial(), end, replicas)
            assert slices == source.slices(source.initial(), end, replicas)
            assert len(slices) <= replicas
            found = [Collected(source.read(piece, "x")).rows for piece in slices]
            assert [row for rows in found for row in rows] == expected
            if compressed is None:
                sizes = [sum(piece.end - piece.begin for piece in part.pieces) for part in slices]
                assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("policy", ["Drop", "DeadLetter", "Fail"])
@given(rows=ROWS, data=st.data(), block_bytes=st.integers(1, 300), replicas=st.sampled_from(REPLICAS))
def test_bad_records_are_found_anywhere_in_a_file(file_format, policy, rows, data, block_bytes, replicas):
    bad_lines = data.draw(st.lists(st.sampled_from(BAD_LINES[file_format]), max_size=8))
    lines = data.draw(
        st.permutations([(row, line_of(row, file_format)) for row in rows] + [(None, line) for line in bad_lines])
    )
    bad = [(line, number) for number, (row, line) in enumerate(lines, 1) if row is None]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(file_formats, "BLOCK_BYTES", block_bytes):
        corrupt = CorruptRecords(policy, f"{folder}/dead")
        source = open_files(folder, file_format, header=False, corrupt=corrupt)
        write(folder, "in/a", [line for _, line in lines])
        end = source.latest(source.initial(), everything=True)
        if policy == "Fail" and bad:
            with pytest.raises(MillraceError) as error:
                list(rows_of(source, source.initial(), end, 1))
            (problem,) = error.value.problems
            assert (problem.file, problem.line) == (f"{folder}/in/a", bad[0][1])
            assert repr(bad[0][0]) in problem.message
            return
        slices = list(rows_of(source, source.initial(), end, replicas))
        assert [row for part in slices for row in part.rows] == [row for row, _ in lines if row is not None]
        assert sum(part.rejected for part in slices) == len(bad)
        assert dead_letters(folder) == (bad if policy == "DeadLetter" else [])


def dead_letters(folder):
    """(text, line) of all dead letters, in order of slices."""
    files = sorted(Path(folder).glob("dead/*"))
    letters = [json.loads(line) for file in files for line in file.read_text("utf-8").split("\n") if line]
    assert all(letter["source"] == "s" and letter["file"] == f"{folder}/in/a" for letter in letters)
    return [(letter["text"], letter["line"]) for letter in letters]


@given(text=st.text('"",x1 \t\n\r', max_size=120), block_bytes=st.integers(1, 60), near=st.integers(60, 130))
def test_records_do_not_depend_on_where_csv_is_cut(text, block_bytes, near):
    """Open quotes, too, and a search for quotes before a slice that ends early."""
    found = []
    for replicas in REPLICAS:
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(file_formats, "BLOCK_BYTES", block_bytes),
            mock.patch.object(file_formats, "LONGEST_LINE", max(near, len(text) + 1)),
        ):
            source = open_files(folder, "csv", header=False, corrupt=CorruptRecords("DeadLetter", f"{folder}/dead"))
            Path(folder, "in/a").write_text(text, "utf-8", newline="")
            end = source.latest(source.initial(), everything=True)
            parts = list(rows_of(source, source.initial(), end, replicas))
            found.append(([row for part in parts for row in part.rows], dead_letters(folder)))
    assert found == [found[0]] * len(found)


def test_a_quote_is_left_open_for_the_longest_record_at_most(tmp_path):
    source = open_files(tmp_path, "csv", header=False)
    lines = ['"a ""quoted"" name",1,1.0,true', *(f"name {n},{n},1.0,true" for n in range(2, 40))]
    write(tmp_path, "in/a", lines)
    end = source.latest(source.initial(), everything=True)
    with mock.patch.object(file_formats, "LONGEST_LINE", 64), mock.patch.object(file_formats, "BLOCK_BYTES", 32):
        parts = [part.rows for part in rows_of(source, source.initial(), end, 7)]
    assert [row[1] for rows in parts for row in rows] == list(range(1, 40))
    write(tmp_path, "in/a", ['"a name,1,1.0,true', *lines[1:]])
    source = open_files(tmp_path, "csv", header=False, log="again", corrupt=CorruptRecords("Drop"))
    end = source.latest(source.initial(), everything=True)
    with (
        mock.patch.object(file_formats, "LONGEST_LINE", 64),
        pytest.raises(MillraceError, match="has a quote that is not closed within 0 MiB; close the quote"),
    ):
        list(rows_of(source, source.initial(), end, 7))


def test_text_in_another_encoding_is_named(tmp_path):
    hints = {
        "utf-16": r"is not text in UTF-8 but UTF-16; convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8",
        "utf-16-le": "is not text in UTF-8 but UTF-16; convert it",
        "utf-32": "is not text in UTF-8 but UTF-32; convert it",
    }
    for file_format in FORMATS:
        for encoding, hint in hints.items():
            path = tmp_path / f"in/{encoding}.{file_format}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes("name,count,size,good\na,1,1.0,true\n".encode(encoding))
            source = FilesSource("s", str(path), file_format, SCHEMA, str(tmp_path / f"log {path.name}"))
            with pytest.raises(MillraceError, match=f"{encoding}.{file_format}: {hint}"):
                all_rows(source)
    zipped = tmp_path / "in/a"
    zipped.write_bytes(gzip.compress(b"name,count,size,good\n"))
    with pytest.raises(MillraceError, match=r"is not text in UTF-8 but gzip; let its name end in \.gz"):
        all_rows(FilesSource("s", str(zipped), "csv", SCHEMA, str(tmp_path / "log gz")))


@given(
    row_groups=st.lists(st.lists(st.integers(1, 50), max_size=3), min_size=1, max_size=3),
    max_rows=st.integers(1, 60),
)
def test_every_row_of_parquet_comes_once_and_in_order(row_groups, max_rows):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(parquet_format, "MAX_ROWS", max_rows):
        source = open_files(folder, "parquet")
        count = 0
        for i, groups in enumerate(row_groups):
            with pq.ParquetWriter(f"{folder}/in/{i}.parquet", SCHEMA) as writer:
                for rows in groups:
                    column = list(range(count, count + rows))
                    count += rows
                    writer.write_table(pa.Table.from_pylist([{"count": n} for n in column], SCHEMA))
        end = source.latest(source.initial(), everything=True)
        for replicas in REPLICAS:
            parts = [part.rows for part in rows_of(source, source.initial(), end, replicas)]
            assert [row[1] for rows in parts for row in rows] == list(range(count))
            assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


def test_parquet_columns_are_found_by_name_and_cast(tmp_path):
    source = open_files(tmp_path, "parquet")
    table = pa.table({"good": [True], "other": [1], "size": pa.array([1.5], pa.float32()), "name": ["a"]})
    pq.write_table(table.append_column("count", pa.array([7], pa.int32())), tmp_path / "in/a.parquet")
    assert all_rows(source) == [("a", 7, 1.5, True)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": ["a"]}, "has no column count, size, good; it has name"),
        ({"name": ["a"], "count": [1.5], "size": [1.0], "good": [True]}, "column count .BIGINT.: "),
    ],
)
def test_parquet_that_does_not_fit_the_schema_is_refused(tmp_path, table, message):
    source = open_files(tmp_path, "parquet")
    pq.write_table(pa.table(table), tmp_path / "in/a.parquet")
    with pytest.raises(MillraceError, match=rf"a\.parquet: {message}"):
        all_rows(source)


@pytest.mark.parametrize(("name", "content"), [("a.parquet", b"PAR1 not really"), ("a.gz", b"\x1f\x8b\x08 not really")])
def test_a_damaged_file_is_named(tmp_path, name, content):
    source = open_files(tmp_path, "parquet" if name.endswith("parquet") else "csv")
    (tmp_path / "in" / name).write_bytes(content)
    with pytest.raises(MillraceError, match=name):
        all_rows(source)


def test_a_cut_off_gzip_file_is_named(tmp_path):
    source = open_files(tmp_path, "csv", header=False)
    whole = gzip.compress(b"a,1,1.0,true\n" * 1000)
    (tmp_path / "in/a.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MillraceError, match=r"a\.gz: not a whole gzip file"):
        all_rows(source)


def test_batches_are_bounded(tmp_path):
    source = open_files(tmp_path, "csv", header=False)
    (tmp_path / "in/a").write_text("a,1,1.0,true\n" * 300_000)
    (piece,) = source.slices(source.initial(), source.latest(source.initial(), everything=True), 1)
    sizes = [batch.num_rows for batch in source.read(piece, "0-0")]
    assert sum(sizes) == 300_000
    assert max(sizes) <= file_formats.MAX_ROWS


def test_an_endless_line_is_refused(tmp_path):
    source = open_files(tmp_path, "csv", header=False)
    (tmp_path / "in/a").write_text("x" * 1000)
    with (
        mock.patch.object(file_formats, "LONGEST_LINE", 100),
        mock.patch.object(file_formats, "BLOCK_BYTES", 10),
        pytest.raises(MillraceError, match="line"),
    ):
        all_rows(source)


def test_the_header_of_each_file_gives_its_own_order(tmp_path):
    source = open_files(tmp_path, "csv")
    write(tmp_path, "in/a", ["name,count,size,good", "x,1,1.5,true"])
    write(tmp_path, "in/b", ["", "good,more,size,name,count", "false,?,2.5,y,2"])
    write(tmp_path, "in/c", [])
    for replicas in REPLICAS:
        assert sorted(all_rows(source, replicas)) == [("x", 1, 1.5, True), ("y", 2, 2.5, False)]


def test_slices_and_source_go_to_tasks_without_the_log(tmp_path):
    source = open_files(tmp_path, "csv", header=False)
    write(tmp_path, "in/a", ["a,1,1.0,true"])
    pieces = source.slices(source.initial(), source.latest(source.initial(), everything=True), 1)
    there, (piece,) = pickle.loads(pickle.dumps((source, pieces)))
    (tmp_path / "log/files.jsonl").unlink()
    assert Collected(there.read(piece, "0-0")).rows == [("a", 1, 1.0, True)]
