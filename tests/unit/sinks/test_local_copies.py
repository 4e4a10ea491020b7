"""Which local copies a start removes: those that the query does not use, and no other."""

from types import SimpleNamespace

import pytest

from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.kafka.live_rows import LiveRows
from millrace_jobs.sinks.kafka.topic import LastWritten, TableOrigin
from millrace_jobs.sinks.outputs import copies_of, remove_unused

OUTPUTS = ("spec", "spec.additionalOutputs.late", "spec.additionalOutputs.final")
KEYS = ["keys.sqlite", "keys.sqlite-wal"]
ROWS = ["table/data.mdb"]
LATE, FINAL = ([f"outputs/{name}/{file}" for file in KEYS] for name in ("late", "final"))
ALL = sorted(KEYS + ROWS + LATE + FINAL)


@pytest.fixture
def copies(tmp_path):
    """Copies as killed runs leave them; those of keys are made by who uses them."""
    for field in OUTPUTS:
        live = LiveRows(copies_of(tmp_path, field))
        live.rebuild(TableOrigin("a topic", {}), LastWritten(), [])
        live._disconnect()
        live._path.with_name("keys.sqlite-wal").touch()
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "data.mdb").touch()
    return tmp_path


def left(copies, tables, going, *, has_rows=True):
    """Files that are left by a spec with these outputs as tables, of which rows go in some."""
    outputs = {field: SimpleNamespace(sink=SimpleNamespace(table=field in tables or None)) for field in OUTPUTS}
    keys = {field: ResultKeys(("k",), retracts=field in going) for field in OUTPUTS}
    remove_unused(copies, SimpleNamespace(outputs=outputs), keys, has_rows=has_rows)
    return sorted(str(file.relative_to(copies)) for file in copies.rglob("*") if file.is_file())


def test_copies_that_are_used_stay(copies):
    assert left(copies, OUTPUTS, OUTPUTS) == ALL


def test_copies_of_an_output_that_is_no_table_go(copies):
    assert left(copies, OUTPUTS[:2], OUTPUTS) == sorted(KEYS + ROWS + LATE)
    assert left(copies, OUTPUTS[1:2], OUTPUTS, has_rows=False) == LATE
    assert left(copies, (), OUTPUTS, has_rows=False) == []


def test_keys_of_a_table_whose_rows_stay_go(copies):
    (copies / "keys.new").touch()
    assert left(copies, OUTPUTS, OUTPUTS[2:]) == sorted(ROWS + FINAL)


def test_rows_beside_a_history_go(copies):
    assert left(copies, OUTPUTS, OUTPUTS, has_rows=False) == sorted(KEYS + LATE + FINAL)


def test_copies_of_an_output_that_was_renamed_go(copies):
    (copies / "outputs" / "final").rename(copies / "outputs" / "earlier")
    assert left(copies, OUTPUTS, OUTPUTS) == sorted(KEYS + ROWS + LATE)


def test_a_folder_without_copies_is_accepted(tmp_path):
    assert left(tmp_path / "none", OUTPUTS, OUTPUTS) == []
