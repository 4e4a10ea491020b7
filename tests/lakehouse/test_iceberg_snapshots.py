"""A commit to an Iceberg table copies none of the snapshots that the table has."""

from __future__ import annotations

import copy
from pathlib import Path

import pyarrow as pa

from millrace_jobs.lakehouse.iceberg_catalog import StagedTransaction, open_catalog

from .iceberg_tables import iceberg_spec


def test_copies_of_a_table_have_the_same_snapshots_and_commits_take_effect(tmp_path: Path) -> None:
    fields = {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "sales.trips"}
    catalog = open_catalog(iceberg_spec(fields))
    catalog.create_namespace("sales")
    rows = pa.table({"n": [1]})
    table = catalog.create_table("sales.trips", rows.schema, (tmp_path / "trips").as_uri())
    for _ in range(3):
        table.append(rows)
    table = catalog.load_table("sales.trips")
    before = table.metadata.snapshots
    assert len(before) == len(table.metadata.snapshot_log) == 3

    transaction = StagedTransaction(table)
    assert transaction.table_metadata is table.metadata
    transaction.update_snapshot().merge_append().commit()
    staged = transaction.table_metadata
    assert transaction.table_metadata is staged
    transaction.set_properties(owner="us")
    assert transaction.table_metadata.properties["owner"] == "us"
    for each in (staged, transaction.table_metadata, copy.deepcopy(table.metadata)):
        assert all(now is then for now, then in zip(each.snapshots, before, strict=False))
    assert (len(staged.snapshots), len(before), len(table.metadata.snapshots)) == (4, 3, 3)
    transaction.commit_transaction()

    found = catalog.load_table("sales.trips")
    assert [each.snapshot_id for each in found.metadata.snapshots] == [each.snapshot_id for each in staged.snapshots]
    assert len(found.metadata.snapshot_log) == 4
    assert found.properties["owner"] == "us"
    assert found.scan().to_arrow().num_rows == 3
