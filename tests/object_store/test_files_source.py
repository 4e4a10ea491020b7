"""The ``files`` source over objects in S3: what a path names, changes, and a run that is killed, judged by DuckDB."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lab.processes import Process
from lab.s3_server import BUCKET, S3Server
from lab.store_proxy import Disturbance, StoreRequest
from lab.waiting import wait_until
from millrace_api.errors import MillraceError, MissingInputError, TransientError
from millrace_jobs.sources.base import Rejected
from millrace_jobs.sources.files import file_log
from millrace_jobs.sources.files import source as files_module
from millrace_jobs.sources.files.listing import ObjectListing
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.stored_files import SHARE, ListingPause
from millrace_jobs.stores.objects import ObjectPath

from .store_runs import MILLRACE
from .stored_inputs import put

SCHEMA = pa.schema([("n", pa.int64())])


def lines(numbers: range) -> bytes:
    return b"".join(b'{"n": %d}\n' % number for number in numbers)


def rows_of_parquet(numbers: range) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": list(numbers)}), sink, row_group_size=100)
    return sink.getvalue()


def source(place: ObjectPath, folder: Path, path: str = "", format: str = "json", **options: Any) -> FilesSource:
    return FilesSource("events", f"{place}{path}", format, SCHEMA, str(folder / "log"), **options)


def numbers(found: FilesSource, start: int = 0, replicas: int = 3) -> list[int]:
    """All that a batch from ``start`` to the newest file reads, each replica after the other."""
    begin = {"files": start}
    read = []
    for piece in found.slices(begin, found.latest(begin, everything=False), replicas):
        for records in found.read(piece, "test"):
            assert not isinstance(records, Rejected)
            read += records["n"].to_pylist()
    return read


def test_all_formats_are_read_in_pieces_each_record_once(place: ObjectPath, tmp_path: Path) -> None:
    put(place, "a.json", lines(range(1000)))
    put(place, "b.json.gz", gzip.compress(lines(range(1000, 1500))) + gzip.compress(lines(range(1500, 1600))))
    put(place, "_hidden.json", b"no record")
    put(place, "below/c.json", b"no record")
    assert sorted(numbers(source(place, tmp_path, "/*.json*"))) == list(range(1600))
    put(place, "p/a.parquet", rows_of_parquet(range(1000)))
    assert sorted(numbers(source(place, tmp_path / "p", "/p", "parquet"))) == list(range(1000))
    put(place, "c/a.csv", b"n\n" + b"".join(b"%d\n" % number for number in range(1000)))
    assert sorted(numbers(source(place, tmp_path / "c", "/c/", "csv"))) == list(range(1000))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", {"top.json"}),
        ("/", {"top.json"}),
        ("/top.json", {"top.json"}),
        ("/day=*/*.json", {"day=1/a.json", "day=2/b.json"}),
        ("/day=[1]/*", {"day=1/a.json", "day=1/x y ü.txt"}),
        ("/**/*.json", {"top.json", "day=1/a.json", "day=2/b.json", "day=2/hour=3/c.json"}),
        ("/day=2/**/*", {"day=2/b.json", "day=2/hour=3/c.json"}),
        ("/none", set()),
        ("/none/*", set()),
    ],
)
def test_a_path_names_objects_as_if_keys_were_paths(place: ObjectPath, path: str, expected: set[str]) -> None:
    keys = ("top.json", "day=1/a.json", "day=1/x y ü.txt", "day=2/b.json", "day=2/hour=3/c.json", "day=2/_tmp/d.json")
    for key in keys:
        put(place, key, b"{}")
    listing = ObjectListing(f"{place}{path}")
    found = {path for path, _ in listing.entries()}
    assert found == {f"{place}/{key}" for key in expected}
    assert all(map(listing.covers, found))


def test_a_large_object_is_fetched_in_bounded_requests(
    place: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has a time-out, within which a column of a large Parquet file would have to arrive."""
    sink, chance = io.BytesIO(), random.Random(1)
    pq.write_table(pa.table({"n": [chance.getrandbits(62) for _ in range(1_000_000)]}), sink, use_dictionary=False)
    put(place, "a.parquet", sink.getvalue())
    lengths, read_range = [], ObjectPath.read_range

    def counted(path: ObjectPath, begin: int, length: int) -> memoryview:
        lengths.append(length)
        return read_range(path, begin, length)

    monkeypatch.setattr(ObjectPath, "read_range", counted)
    assert len(numbers(source(place, tmp_path, format="parquet"))) == 1_000_000
    assert sum(lengths) > 7 << 20
    assert max(lengths) <= 4 << 20


def test_only_new_objects_are_read_and_replaced_ones_are_refused(place: ObjectPath, tmp_path: Path) -> None:
    put(place, "a.json", lines(range(10)))
    found = source(place, tmp_path)
    assert numbers(found) == list(range(10))
    put(place, "b.json", lines(range(10, 20)))
    assert numbers(found, 1) == list(range(10, 20))
    assert numbers(source(place, tmp_path), 1) == list(range(10, 20)), "another run has the same log"
    put(place, "b.json", lines(range(10, 30)))
    with pytest.raises(MillraceError, match="had 100 bytes when it was seen and has 200 now"):
        found.latest({"files": 2}, everything=False)


def test_an_object_that_is_gone_before_it_is_read_is_refused(place: ObjectPath, tmp_path: Path) -> None:
    put(place, "a.json", lines(range(10)))
    found = source(place, tmp_path)
    end = found.latest({"files": 0}, everything=False)
    (place / "a.json").unlink()
    (piece,) = found.slices({"files": 0}, end, 1)
    with pytest.raises(MillraceError, match=f"{place}/a.json: was seen earlier and is not there now"):
        list(found.read(piece, "test"))


def test_a_listing_costs_one_request_and_looks_at_nothing_again(
    place: ObjectPath, tmp_path: Path, s3: S3Server
) -> None:
    for number in range(5):
        put(place, f"{number}.json", lines(range(number)))
    found = source(place, tmp_path)
    found.latest({"files": 0}, everything=False)
    before = s3.requests
    found.latest({"files": 0}, everything=False)
    assert s3.requests - before == {"LIST": 1}


def test_a_store_that_is_away_is_a_transient_error(place: ObjectPath, tmp_path: Path, s3: S3Server) -> None:
    put(place, "a.json", lines(range(10)))
    found = source(place, tmp_path)
    end = found.latest({"files": 0}, everything=False)
    (piece,) = found.slices({"files": 0}, end, 1)

    def refused(request: StoreRequest) -> Disturbance | None:
        return Disturbance(status=503) if request.method == "GET" else None

    with s3.disturbed(refused), pytest.raises(TransientError, match=f"{place}/a.json: cannot be read"):
        list(found.read(piece, "test"))
    assert [len(each["n"]) for each in found.read(piece, "test") if not isinstance(each, Rejected)] == [10]


def test_a_listing_that_is_refused_is_a_transient_error(place: ObjectPath, tmp_path: Path, s3: S3Server) -> None:
    put(place, "a.json", lines(range(10)))
    found = source(place, tmp_path)
    with s3.disturbed(lambda _: Disturbance(status=503)), pytest.raises(TransientError, match="cannot list the files"):
        found.latest({"files": 0}, everything=False)
    assert found.latest({"files": 0}, everything=False) == {"files": 1}


def test_an_object_without_content_is_no_file(place: ObjectPath, tmp_path: Path) -> None:
    """Consoles and Hadoop make such objects for folders."""
    put(place, "empty.json", b"")
    put(place, "a.json", lines(range(10)))
    assert numbers(source(place, tmp_path)) == list(range(10))


def test_what_is_missing_is_said(place: ObjectPath, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=f"no file matches this path.*{place} has no such object"):
        source(place, tmp_path, "/*.json")
    with pytest.raises(MillraceError, match="cannot list the files: NoSuchBucket"):
        FilesSource("events", "s3a://no-such-bucket/a/*", "json", SCHEMA, str(tmp_path / "log"))


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_killed_run_goes_on_with_input_and_checkpoint_in_s3(place: ObjectPath, tmp_path: Path, s3: S3Server) -> None:
    chance = random.Random(7)
    rows = [{"n": number, "city": f"c{chance.randrange(9)}"} for number in range(5000)]
    parts = [rows[begin : begin + 500] for begin in range(0, len(rows), 500)]
    for number, part in enumerate(parts):
        content = "".join(json.dumps(each) + "\n" for each in part).encode()
        put(place, f"in/day={number % 3}/{number}.json.gz", gzip.compress(content))
    spec = {
        "sources": {
            "events": {
                "files": {"path": f"{place}/in/day=*/*.json.gz", "format": "json", "maxFilesPerBatch": 2},
                "schema": "n BIGINT, city STRING",
            }
        },
        "query": {"sql": "SELECT city, count(*) AS events, sum(n) AS total FROM events GROUP BY city"},
        "sink": {"files": {"path": str(tmp_path / "out"), "format": "parquet"}},
        "batchInterval": "500ms",
        "parallelism": {"max": 2},
        "checkpoint": {"uri": f"s3a://{BUCKET}/{place.key}-state"},
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "q"}, "spec": spec}
    file = tmp_path / "query.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    run = Process([MILLRACE, "run", file], tmp_path / "1.log")
    wait_until(lambda: run.said.count("\nbatch=") >= 2, lambda: f"two batches: {run.said}", seconds=200)
    run.kill()
    run = Process([MILLRACE, "run", file, "--once"], tmp_path / "2.log")
    assert run.wait(300) == 0, run.said
    results = pq.read_table(tmp_path / "out")
    expected = duckdb.from_arrow(pa.Table.from_pylist(rows)).aggregate("city, count(*), sum(n)", "city").fetchall()
    newest = duckdb.sql("SELECT city, arg_max(events, _batch_id), arg_max(total, _batch_id) FROM results GROUP BY city")
    assert sorted(newest.fetchall()) == sorted(expected)
    assert results.num_rows


def by_name(place: ObjectPath, folder: Path, path: str = "/**/*.json", **options: Any) -> FilesSource:
    return source(place, folder, path, by_name=True, **options)


def test_by_name_only_what_is_behind_the_last_name_is_listed(place: ObjectPath, tmp_path: Path, s3: S3Server) -> None:
    for number in range(1500):
        path = s3.folder / "objects" / BUCKET / place.key / f"day={number // 500}" / f"{number:05d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(range(number, number + 1)))
    put(place, "day=1/_tmp/x.json", b"no record")
    put(place, "day=1/x.txt", b"no record")
    found = by_name(place, tmp_path)
    assert numbers(found, replicas=1) == list(range(1500)), "in the order of their names"
    before = s3.requests
    assert found.latest({"files": 1500}, everything=False) == {"files": 1500}
    assert s3.requests - before == {"LIST": 1}
    put(place, "day=1/99999.json", lines(range(7, 8)))
    put(place, "day=2/99999.json", lines(range(8, 9)))
    assert numbers(found, 1500) == [8], "a name before the last one is never read"
    assert numbers(by_name(place, tmp_path), 1501) == [], "nor by another run"
    assert len((tmp_path / "log/files.jsonl").read_bytes().splitlines()) < 1600


def test_by_name_the_log_keeps_what_is_unread_and_the_last_name(
    place: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "LISTED_PER_TRIGGER", 4)
    monkeypatch.setattr(file_log, "_SLACK", 2)
    for number in range(20):
        put(place, f"{number:02d}.json", lines(range(number, number + 1)))
    read: list[int] = []
    position = {"files": 0}
    for _ in range(12):
        found = by_name(place, tmp_path, max_files_per_batch=2)
        end = found.latest(position, everything=False)
        for piece in found.slices(position, end, 1):
            read += [
                n for each in found.read(piece, "test") if not isinstance(each, Rejected) for n in each["n"].to_pylist()
            ]
        position = end
        assert len(found._log) <= 12
    assert read == list(range(20))
    assert found.latest(position, everything=False) == {"files": 20}
    assert found._log.last() is not None


def test_a_long_listing_is_followed_by_a_pause(place: ObjectPath, tmp_path: Path, s3: S3Server) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 3.0
        return now[0]

    put(place, "a.json", lines(range(10)))
    found = source(place, tmp_path)
    found._pause = ListingPause(clock)
    assert found.latest({"files": 0}, everything=False) == {"files": 1}
    put(place, "b.json", lines(range(10)))
    before = s3.requests
    assert found.latest({"files": 0}, everything=False) == {"files": 1}
    assert s3.requests == before
    now[0] += SHARE * 3.0
    assert found.latest({"files": 0}, everything=False) == {"files": 2}


def test_columns_are_in_the_keys(place: ObjectPath, tmp_path: Path) -> None:
    for city in ("a/b", "50%", "ü", None):
        folder = "__HIVE_DEFAULT_PARTITION__" if city is None else quote(city, safe="ü")
        put(place, f"city={folder}/hour=03/a.json.zst", pa.Codec("zstd").compress(lines(range(1)), asbytes=True))
    schema = pa.schema([("city", pa.string()), ("n", pa.int64()), ("hour", pa.int32())])
    found = FilesSource("e", f"{place}/*/*/*", "json", schema, str(tmp_path / "log"), in_path=["city", "hour"])
    end = found.latest({"files": 0}, everything=False)
    rows = [row for piece in found.slices({"files": 0}, end, 2) for each in found.read(piece, "t") if not isinstance(each, Rejected) for row in each.to_pylist()]  # fmt: skip
    assert sorted(rows, key=str) == sorted(({"city": c, "n": 0, "hour": 3} for c in ("a/b", "50%", "ü", None)), key=str)
