"""The sources of a calibration run: one batch for each turn, and the same records again, later."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_jobs.calibration.turns import BatchTurn, TurnSource, first_time
from millrace_jobs.sources.base import Position, Rejected
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.generated.rows import RateSource
from millrace_jobs.sources.replay.connector import ReplaySource

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
SECOND = 1_000_000


def replay(folder: Path, rows: int = 10) -> ReplaySource:
    """A recording with a record each second of 1970."""
    table = pa.table({"at": pa.array([n * SECOND for n in range(rows)]), "n": range(rows)}).cast(SCHEMA)
    pq.write_table(table, folder / "records.parquet")
    return ReplaySource("s", str(folder / "records.parquet"), "parquet", SCHEMA, "at", str(folder / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "turn.json"


def following(source: TurnSource, start: Position, file: Path, turn: BatchTurn) -> Position:
    turn.write(file)
    return json.loads(json.dumps(source.latest(start, everything=False, most=1)))  # through Spark's log


def records(source: TurnSource, start: Position, end: Position, replicas: int = 2) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for piece in source.slices(start, end, replicas):
        for batch in source.read(piece, "x"):
            assert not isinstance(batch, Rejected)
            found += zip(batch["at"].cast(pa.int64()).to_pylist(), batch["n"].to_pylist(), strict=True)
    return found


def test_a_batch_has_the_records_of_its_turn_whatever_the_pace(tmp_path: Path, file: Path) -> None:
    source = TurnSource(replay(tmp_path), file, 1.0, again=True)
    first = following(source, source.initial(), file, BatchTurn(1, 4))
    assert [n for _, n in records(source, source.initial(), first)] == [0, 1, 2, 3]


def test_no_batch_follows_before_the_next_turn(tmp_path: Path, file: Path) -> None:
    source = TurnSource(replay(tmp_path), file, 1.0, again=True)
    first = following(source, source.initial(), file, BatchTurn(1, 4))
    assert source.latest(first, everything=False) == first
    second = following(source, first, file, BatchTurn(2, 4))
    assert [n for _, n in records(source, first, second)] == [4, 5, 6, 7]


def test_records_are_read_again_with_later_times(tmp_path: Path, file: Path) -> None:
    source = TurnSource(replay(tmp_path), file, 1.0, again=True)
    end = following(source, source.initial(), file, BatchTurn(1, 100))
    again = following(source, end, file, BatchTurn(2, 3, shift=60 * SECOND))
    assert records(source, end, again) == [(60 * SECOND, 0), (61 * SECOND, 1), (62 * SECOND, 2)]
    assert not source.exhausted(end)
    further = following(source, again, file, BatchTurn(3, 2, shift=99 * SECOND))
    assert records(source, again, further) == [(63 * SECOND, 3), (64 * SECOND, 4)]


def test_sources_that_come_to_their_ends_one_after_the_other_stay_together(tmp_path: Path, file: Path) -> None:
    first, second = (TurnSource(replay(tmp_path), file, 1.0, again=True) for _ in range(2))
    end = following(first, first.initial(), file, BatchTurn(1, 100))
    second.latest(second.initial(), everything=False)
    again = [
        following(first, end, file, BatchTurn(2, 3, shift=60 * SECOND)),
        following(second, end, file, BatchTurn(3, 3, shift=75 * SECOND)),
    ]
    assert records(first, end, again[0]) == records(second, end, again[1])


def test_a_source_that_comes_to_its_end_much_later_follows_the_last_records(tmp_path: Path, file: Path) -> None:
    first, second = (TurnSource(replay(tmp_path), file, 1.0, again=True) for _ in range(2))
    end = following(first, first.initial(), file, BatchTurn(1, 100))
    following(first, end, file, BatchTurn(2, 3, shift=60 * SECOND))
    again = following(second, end, file, BatchTurn(9, 1, shift=75 * SECOND))
    assert records(second, end, again) == [(75 * SECOND, 0)]


def test_a_source_that_cannot_be_read_again_ends(tmp_path: Path, file: Path) -> None:
    source = TurnSource(replay(tmp_path), file, 1.0, again=False)
    end = following(source, source.initial(), file, BatchTurn(1, 100))
    assert following(source, end, file, BatchTurn(2, 3)) == end
    assert source.exhausted(end)


def test_a_source_has_its_share_of_the_records(file: Path) -> None:
    source = TurnSource(RateSource("s", 10.0), file, 0.25, again=True)
    end = following(source, source.initial(), file, BatchTurn(1, 1000))
    assert len([row for piece in source.slices(source.initial(), end, 3) for row in source.read(piece, "x")]) == 3
    assert end["at"]["row"] == 250


def test_files_come_in_units(tmp_path: Path, file: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"{number}.csv").write_text(f"at,n\n1970-01-01T00:00:0{number}Z,{number}\n")
    log = str(tmp_path / "log")
    files = FilesSource("s", str(tmp_path / "in"), "csv", SCHEMA, log, max_files_per_batch=1, by_name=True)
    source = TurnSource(files, file, 1.0, again=True)
    end = following(source, source.initial(), file, BatchTurn(1, 3, units=3))
    assert [n for _, n in records(source, source.initial(), end)] == [0, 1, 2]


@pytest.mark.parametrize("column", ["at", "AT"])
def test_the_first_time_is_that_of_the_first_records(tmp_path: Path, column: str) -> None:
    assert first_time(replay(tmp_path), column) == 0
