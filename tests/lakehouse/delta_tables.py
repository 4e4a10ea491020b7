"""Delta tables as commits leave them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.disk import absolute_path
from millrace_jobs.sinks.base import LastBatch
from millrace_jobs.sinks.lakehouse.data_files import DataFile, FileWriter, Folder
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaTarget
from millrace_jobs.stores.clients import s3_endpoint
from millrace_jobs.stores.objects import ObjectPath

from .tables import FRESH

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def folder_of(place: str) -> Folder:
    return ObjectPath.of(place) if place.startswith("s3a:") else absolute_path(place)


def target(place: str, checkpoint: str = "a-checkpoint", query: str = "counts", **fields) -> DeltaTarget:
    spec = DeltaSinkSpec.model_validate({"path": place, **fields})
    return DeltaTarget(folder_of(place), spec, SCHEMA, query, checkpoint)


def taken(place: str, last: LastBatch = FRESH, **fields) -> DeltaTarget:
    found = target(place, **fields)
    found.take(last)
    return found


def options(place: str) -> dict[str, str]:
    return {"allow_http": "true", "aws_endpoint_url": s3_endpoint() or ""} if place.startswith("s3") else {}


def add(place: str, first: int, count: int = 10, **how: Any) -> None:
    """Append rows with these numbers, in two partitions with odd names."""
    numbers = range(first, first + count)
    content = {"id": pa.array(numbers, pa.int64()), "city": [["a b%", "é/z"][number % 2] for number in numbers]}
    how = {"mode": "append", "partition_by": ["city"], "storage_options": options(place)} | how
    write_deltalake(place, pa.table(content | how.pop("more", {})), **how)


def files(place: str, rows: list[tuple[str, int]]) -> list[DataFile]:
    """Write a file as a task would."""
    batch = pa.RecordBatch.from_pylist([{"k": k, "n": n} for k, n in rows], SCHEMA)
    (report,) = FileWriter(folder_of(place), "batch-", SCHEMA)(iter([batch]))
    (each,) = report.to_pylist()
    return [DataFile(each["name"], each["size"], {}, pq.read_metadata(io.BytesIO(each["footer"])))]
