"""The changes of Delta tables: they leave the rows that the table has, whichever operation and batch they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.s3_server import BUCKET
from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import DELETED

from .changed import CHANGING, FEED, Kept, append, changing, create, merge, rows, rows_of
from .streamed import opened

CITIES = ("Oslo", "a b%", "é/z", None)

OPERATIONS: dict[str, Callable[[str, int], object]] = {
    "append": lambda place, new: append(place, {new: "Oslo", new + 1: None}, schema_mode="merge"),
    "merge": lambda place, new: merge(place, {3: "Rome", 4: "é/z", new: "a b%"}, deleted=(0, 5, new + 1)),
    "merge that changes nothing": lambda place, new: merge(place, {3: CITIES[3], 4: CITIES[0]}),
    "insert by merge": lambda place, new: merge(place, {new: "Oslo"}),
    "update": lambda place, new: DeltaTable(place).update(updates={"city": "'new'"}, predicate="id % 3 = 0"),
    "another key": lambda place, new: DeltaTable(place).update(updates={"id": "id + 1"}),
    "keys that change places": lambda place, new: DeltaTable(place).update(updates={"id": "9 - id"}),
    "delete": lambda place, new: DeltaTable(place).delete("id IN (1, 6)"),
    "delete a partition": lambda place, new: DeltaTable(place).delete("city = 'Oslo'"),
    "delete all": lambda place, new: DeltaTable(place).delete(),
    "overwrite": lambda place, new: append(place, {2: "x", new: "Oslo"}, mode="overwrite", schema_mode="merge"),
    "overwrite a part": lambda place, new: append(
        place, {new: "Oslo", new + 1: "Oslo"}, mode="overwrite", schema_mode="merge", predicate="city = 'Oslo'"
    ),
    "compact": lambda place, new: DeltaTable(place).optimize.compact(),
    "sort": lambda place, new: DeltaTable(place).optimize.z_order(["id"]),
    "restore": lambda place, new: DeltaTable(place).restore(0) if DeltaTable(place).version() else None,
    "add a column": lambda place, new: write_deltalake(
        place, rows({new: "Oslo"}).append_column("fare", pa.array([0.5])), mode="append", schema_mode="merge"
    ),
}
"""What changes a table, with numbers from the second argument on that no row has had; some do not use them."""


@pytest.fixture(params=[False, True], ids=["whole", "by city"])
def by_city(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def expected(place: str) -> dict[tuple[object, ...], dict[str, object]]:
    """Return the rows of a table with the declared columns."""
    return {key: {name: row[name] for name in ("id", "city")} for key, row in rows_of(place).items()}


def described(numbers: range) -> dict[int, str | None]:
    return {number: CITIES[number % len(CITIES)] for number in numbers}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_leaves_the_rows_of_the_table(tmp_path: Path, operation: str, by_city: bool) -> None:
    place = str(tmp_path / "a table, 50% done")
    create(place, described(range(5)), by_city=by_city)
    append(place, described(range(5, 10)))
    kept = Kept(changing(place, tmp_path / "state"))
    assert kept.take() == 10
    assert kept.rows == expected(place)
    OPERATIONS[operation](place, 20)
    changes = kept.take_all(replicas=3)
    assert kept.rows == expected(place)
    assert operation == "merge that changes nothing" or bool(changes) == (operation not in ("compact", "sort"))
    OPERATIONS["append"](place, 30)
    assert kept.take_all() == 2
    assert kept.rows == expected(place)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    operations=st.lists(st.sampled_from([*OPERATIONS, None, None]), min_size=2, max_size=7),
    by_city=st.booleans(),
    files=st.sampled_from([None, 1, 2, 3]),
    start=st.sampled_from([{}, {"startFrom": "Table"}, {"startingVersion": 0}]),
    replicas=st.integers(1, 3),
)
def test_any_operations_leave_the_rows_of_the_table(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[str | None],
    by_city: bool,
    files: int | None,
    start: dict[str, object],
    replicas: int,
) -> None:
    """None stands for a batch, and a restart, between two operations."""
    folder = tmp_path_factory.mktemp("any")
    place = str(folder / "table")
    create(place, described(range(6)), by_city=by_city)
    fields = start | ({} if files is None else {"maxFilesPerBatch": files})
    kept = Kept(changing(place, folder / "state", **fields))
    for turn, operation in enumerate(operations):
        if operation is None:
            kept.take(replicas)
            kept.restart(changing(place, folder / "state", **fields))
        else:
            OPERATIONS[operation](place, 1000 * (turn + 1))
    kept.take_all(replicas)
    assert kept.rows == expected(place)


def test_the_library_derives_the_same_changes(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, described(range(10)))
    for operation in ("merge", "delete", "another key", "compact", "append", "update"):
        OPERATIONS[operation](place, 20)
    kept = Kept(changing(place, tmp_path / "state", startingVersion=0))
    kept.take_all()
    found = sorted((each["id"], each[DELETED]) for batch in kept.batches for each in batch)
    feed = pa.table(DeltaTable(place).load_cdf(starting_version=0).read_all()).to_pylist()
    deletes = ("delete", "update_preimage")
    assert found == sorted((each["id"], each["_change_type"] in deletes) for each in feed)
    times = {each["_changed_at"].replace(tzinfo=None) for batch in kept.batches for each in batch}
    assert times == {each["_commit_timestamp"].replace(tzinfo=None) for each in feed}


def test_several_changes_of_a_key_in_one_batch_come_in_order(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, {1: "first"})
    kept = Kept(changing(place, tmp_path / "state", startingVersion=0))
    merge(place, {1: "second"})
    merge(place, {}, deleted=(1,))
    merge(place, {1: "third"})
    merge(place, {1: "fourth"})
    assert kept.take() == 1 + 2 + 1 + 1 + 2
    assert kept.rows == {(1,): {"id": 1, "city": "fourth"}}
    assert [each["city"] for each in kept.batches[0] if not each[DELETED]] == ["first", "second", "third", "fourth"]


def test_changes_start_where_the_source_says(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, {1: "a"})
    append(place, {2: "b"})
    for name, fields, rows_first in (
        ("whole", {}, {1, 2}),
        ("latest", {"startFrom": "Latest"}, set()),
        ("version", {"startingVersion": 1}, {2}),
    ):
        kept = Kept(changing(place, tmp_path / name, **fields))
        kept.take()
        assert {key for (key,) in kept.rows} == rows_first
    for name, known in (("whole", {1, 2}), ("latest", {2})):
        merge(place, {2: name})
        kept = Kept(changing(place, tmp_path / name))
        kept.take_all()
        assert {key for (key,) in kept.rows} == known, "the first batch was lost, and is made again"
        assert kept.rows[2,]["city"] == name


def test_a_table_is_refused_for_versions_without_a_change_feed(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    write_deltalake(place, rows({1: "a"}))
    with pytest.raises(MillraceError) as raised:
        changing(place, tmp_path / "state")
    assert str(raised.value) == (
        f"spec.sources.trips.delta: source trips: version 0 of the Delta table {place} has no change data feed; "
        "set delta.enableChangeDataFeed to true in the table"
    )
    append(place, {2: "b"})
    DeltaTable(place).alter.set_table_properties(FEED)
    append(place, {3: "c"})
    with pytest.raises(MillraceError) as raised:
        changing(place, tmp_path / "state", startingVersion=1)
    assert str(raised.value) == (
        f"spec.sources.trips.delta: source trips: version 1 of the Delta table {place} has no change data feed; "
        "write 2 or a later one, which have it"
    )
    for name, fields, found in (("later", {"startingVersion": 2}, {3}), ("whole", {}, {1, 2, 3})):
        kept = Kept(changing(place, tmp_path / name, **fields))
        kept.take_all()
        assert {key for (key,) in kept.rows} == found
    DeltaTable(place).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    append(place, {4: "d"})
    with pytest.raises(MillraceError, match=r"version 4 of .* has no change data feed; set .*, and start with another"):
        kept.take()


def test_change_files_that_were_vacuumed_are_an_error(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, {1: "a", 2: "b"})
    merge(place, {1: "c"})
    source = changing(place, tmp_path / "state", startingVersion=1)
    at = dict(source.initial())
    for file in (tmp_path / "table" / "_change_data").rglob("*.parquet"):
        file.unlink()
    end = source.latest(at, everything=True)
    with pytest.raises(MillraceError) as raised:
        [list(source.read(piece, "0")) for piece in source.slices(at, end, 1)]
    assert (
        f"source trips: the Delta table {place} has removed a file that is still to be read; start with another "
        "checkpoint, and let the table keep its files for longer than the query may lag behind"
    ) in str(raised.value)


def test_limits_keep_commits_whole_unless_one_is_too_large(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, described(range(40)), by_city=True)
    kept = Kept(changing(place, tmp_path / "state", maxFilesPerBatch=3))
    kept.take_all()
    assert [len(batch) for batch in kept.batches] == [30, 10]
    kept.batches.clear()
    append(place, {50: "Oslo"})
    append(place, {51: "Oslo"})
    DeltaTable(place).update(updates={"id": "id + 100"})
    append(place, {52: "Oslo"})
    kept.take()
    assert len(kept.batches[0]) == 2, "two commits, and not a part of the third"
    kept.take()
    assert all(each[DELETED] for each in kept.batches[1]), "deletes are before the rows that are set"
    kept.take_all()
    assert kept.rows == expected(place)
    assert kept.source.lag(kept.at) == 0
    assert sum(map(len, kept.batches)) == 2 + 84 + 1


def test_the_backlog_is_counted_in_records(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, described(range(10)))
    append(place, described(range(10, 15)))
    DeltaTable(place).delete("id < 10")
    source = changing(place, tmp_path / "state", startingVersion=0)
    start = source.initial()
    all_of_it = source.lag(start)
    assert all_of_it > 15, "of a change file, its records are estimated by its size"
    assert source.lag(source.latest(start, everything=False, most=14)) == all_of_it - 10
    assert source.lag(source.latest(start, everything=False, most=15)) == all_of_it - 15
    assert source.lag(source.latest(start, everything=False)) == 0


def test_added_columns_are_read_and_changed_columns_are_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, {1: "a"})
    OPERATIONS["add a column"](place, 70)
    DeltaTable(place).update(updates={"fare": "1.5"}, predicate="id = 1")
    kept = Kept(changing(place, tmp_path / "state", "id BIGINT, FARE DOUBLE", startingVersion=0))
    kept.take_all()
    assert kept.rows == {(1,): {"id": 1, "FARE": 1.5}, (70,): {"id": 70, "FARE": 0.5}}
    other = pa.table({"id": pa.array([1], pa.int64()), "city": pa.array([7], pa.int32())})
    write_deltalake(place, other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(MillraceError, match="has no column FARE; it has id, city"):
        kept.take()


def test_a_key_may_have_several_columns_one_of_which_is_a_partition(tmp_path: Path) -> None:
    place, keys = str(tmp_path / "table"), ("city", "id")
    content = [{"id": number % 3, "city": CITIES[number // 3], "n": number} for number in range(9)]
    write_deltalake(place, pa.Table.from_pylist(content), partition_by=["city"], configuration=FEED)
    kept = Kept(changing(place, tmp_path / "state", "n BIGINT, id BIGINT, city STRING", keys=keys), keys)
    DeltaTable(place).update(updates={"n": "n + 100"}, predicate="id = 1")
    DeltaTable(place).delete("city = 'Oslo'")
    DeltaTable(place).update(updates={"city": "'Rome'"}, predicate="city = 'a b%'")
    kept.take_all(replicas=2)
    assert kept.rows == rows_of(place, keys=keys)


def test_changes_of_a_table_in_s3_are_read(tmp_path: Path, shared_s3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
    place = f"s3a://{BUCKET}/changes/{tmp_path.name}/table"
    options = {"allow_http": "true", "aws_endpoint_url": shared_s3.environment["AWS_ENDPOINT_URL"]}
    write_deltalake(
        place, rows(described(range(10))), configuration=FEED, partition_by=["city"], storage_options=options
    )
    kept = Kept(opened("delta", {"path": place}, tmp_path / "state", **CHANGING))
    table = DeltaTable(place, storage_options=options)
    table.update(updates={"id": "id + 5"}, predicate="id % 2 = 0")
    table.delete("id < 4")
    kept.take_all(replicas=2)
    assert set(kept.rows) == {(number,) for number in (5, 7, 9, 11, 13)}
