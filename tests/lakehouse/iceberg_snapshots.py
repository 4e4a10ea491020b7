"""Snapshots of an Iceberg table: appended, compacted, deleted from."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from millrace_jobs.lakehouse.iceberg_catalog import open_catalog, require_namespace
from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergTarget

from .iceberg_tables import iceberg_spec, iceberg_table
from .tables import FRESH


def in_file(folder: Path) -> dict[str, Any]:
    place = str(folder / "a table, 50% done")
    return {"catalog": {"file": str(folder / "catalog.db")}, "table": "sales.trips", "location": place}


def numbered(first: int, count: int = 10) -> pa.Table:
    found = range(first, first + count)
    cities = [["a b%", "é/z", None][number % 3] for number in found]
    return pa.table({"id": pa.array(found, pa.int64()), "city": cities, "day": [date(2024, 1, 1)] * count})


def created(fields: dict[str, Any], **properties: str) -> Table:
    """Create the table, partitioned by a column."""
    spec = iceberg_spec(fields)
    catalog = open_catalog(spec)
    require_namespace(catalog, spec.namespace)
    place = spec.location.replace("s3a:", "s3:") if spec.location is not None else None
    table = catalog.create_table(spec.table, numbered(0).schema, location=place, properties=properties)
    with table.update_spec() as update:
        update.add_identity("city")
    return table


def compacted(fields: dict[str, Any]) -> None:
    """Rewrite the files of a table without a change of its rows, as the sink does between two batches."""
    target = IcebergTarget(iceberg_spec(fields), numbered(0).schema, "writer", "a-checkpoint")
    target.take(FRESH)
    target.compact()
    snapshot = iceberg_table(fields).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE


class _Deletes(_FastAppendFiles):
    """Adds a file with positions of deleted rows, which the library does not write itself."""

    def new_manifest_writer(self, spec: Any) -> Any:
        return _DeletesWriter(
            spec,
            self._transaction.table_metadata.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta | {"content": "deletes"}


def delete(
    table: Table, path: str, places: list[int], partition: Record, content: DataFileContent, place: Path
) -> None:
    """Commit a file with deleted rows."""
    pq.write_table(pa.table({"file_path": [path] * len(places), "pos": pa.array(places, pa.int64())}), place)
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{place}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(places),
        file_size_in_bytes=place.stat().st_size,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = table.spec().spec_id
    transaction = table.transaction()
    _Deletes(Operation.OVERWRITE, transaction, table.io).append_data_file(file).commit()
    transaction.commit_transaction()
