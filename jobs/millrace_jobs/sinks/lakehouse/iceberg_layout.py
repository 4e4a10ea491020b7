"""Columns and partitions of an Iceberg table: in Arrow, in Spark, and in the entries of its files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as FileEntry
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sinks.base import quoted
from millrace_jobs.sinks.lakehouse.columns import sql_type
from millrace_jobs.sinks.lakehouse.data_files import DataFile

_ID = b"PARQUET:field_id"
"""Metadata of an Arrow field with the number by which Iceberg knows a column, whatever its name."""

_UNITS: dict[str, Transform[Any, Any]] = {
    "years": YearTransform(),
    "months": MonthTransform(),
    "days": DayTransform(),
    "hours": HourTransform(),
}

_TERM = re.compile(rf"({'|'.join(_UNITS)})\((.+)\)")

_DAY, _HOUR = 86_400_000_000, 3_600_000_000
"""Microseconds."""


@dataclass(frozen=True)
class PartitionTerm:
    """A column that a table is partitioned by, or a unit of time of it; ``unit`` is empty for the column itself."""

    column: str
    unit: str = ""

    @classmethod
    def of(cls, text: str) -> PartitionTerm:
        """Return the term of a text such as ``cell`` or ``days(since)``."""
        found = _TERM.fullmatch(text)
        return cls(text) if found is None else cls(found[2], found[1])

    @classmethod
    def of_field(cls, field: PartitionField, schema: Schema) -> PartitionTerm | None:
        """Return the term of a table's partition field; None if tasks cannot compute it."""
        name = schema.find_column_name(field.source_id)
        units = [unit for unit, transform in _UNITS.items() if transform == field.transform]
        if name is None or not (units or isinstance(field.transform, IdentityTransform)):
            return None
        return cls(name, *units)

    def __str__(self) -> str:
        return f"{self.unit}({self.column})" if self.unit else self.column

    @property
    def transform(self) -> Transform[Any, Any]:
        """The transform by the library."""
        return _UNITS[self.unit] if self.unit else IdentityTransform()

    @property
    def field_name(self) -> str:
        """Name of the partition field of a new table, as other engines give it."""
        return f"{self.column}_{self.unit.removesuffix('s')}" if self.unit else self.column

    @property
    def computed(self) -> str:
        """Name of the column of rows that has the value; that of the column itself, if the term is one."""
        return f"millrace_{self.unit}_of_{self.column}" if self.unit else self.column

    def expression(self, schema: pa.Schema) -> Column:
        """Return the value by Spark, under the name ``computed``, whatever the time zone of its session."""
        name = quoted(self.column)
        if not self.unit:
            return F.expr(name)
        zoned = getattr(schema.field(self.column).type, "tz", None) is not None
        days = f"CAST({_whole(name, _DAY)} AS INT)" if zoned else f"unix_date(CAST({name} AS DATE))"
        day = f"date_from_unix_date({days})"
        hours = f"CAST({_whole(name, _HOUR)} AS INT)" if zoned else f"{days} * 24 + hour({name})"
        years = f"(year({day}) - 1970)"
        of_unit = {"years": years, "months": f"{years} * 12 + month({day}) - 1", "days": days, "hours": hours}
        return F.expr(of_unit[self.unit]).alias(self.computed)

    def require_time(self, schema: pa.Schema, field: str) -> None:
        """Check that the column of a unit is a time.

        Raises MillraceError if the result has no such column, or it has another type.
        """
        if self.column not in schema.names:
            message = f'the result has no column "{self.column}"'
            raise MillraceError(Problem(message, f"write one of {', '.join(schema.names)}", field=field))
        kind = schema.field(self.column).type
        if not (pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and self.unit != "hours")):
            message = f"{self} is no partition, because {self.column} is {sql_type(kind)}"
            raise MillraceError(Problem(message, "write a TIMESTAMP or DATE column", field=field))


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a table, with the numbers by which Iceberg knows them."""
    return pa.schema([_arrow_field(each) for each in schema.fields])


def stored_types(results: pa.Schema) -> pa.Schema:
    """Return the columns of results with types that Iceberg has: it has no integers of 8 and 16 bits."""
    return pa.schema([each.remove_metadata() for each in arrow_schema(iceberg_schema(results))])


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Return the schema of a new table with these columns."""
    numbers = itertools.count(1)
    return assign_fresh_schema_ids(pyarrow_to_schema(pa.schema([_numbered(each, numbers) for each in columns])))


def file_entries(
    files: Iterable[DataFile],
    folder: str,
    terms: Sequence[PartitionTerm],
    metadata: TableMetadata,
    partition: Record | None = None,
) -> list[FileEntry]:
    """Return files as entries of a manifest, with statistics from their footers by which readers skip files.

    Args:
        files: the files, directly in ``folder``.
        folder: the place of the files, as the table's metadata writes it.
        terms: what the table is partitioned by.
        metadata: the table's metadata.
        partition: the partition of all files, if their reports do not have it.
    """
    schema = metadata.schema()
    plan, places = compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
    entries = []
    for each in files:
        values = (_partition_value(each.values[term.computed], term, schema) for term in terms)
        found = data_file_statistics_from_parquet_metadata(each.metadata, plan, places)
        entries.append(
            FileEntry.from_args(
                content=DataFileContent.DATA,
                file_path=f"{folder}/{each.name}",
                file_format=FileFormat.PARQUET,
                partition=Record(*values) if partition is None else partition,
                file_size_in_bytes=each.size,
                sort_order_id=None,
                spec_id=metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **found.to_serialized_dict(),
            )
        )
    return entries


def _whole(time: str, unit: int) -> str:
    """Return the whole units of a TIMESTAMP since 1970, in SQL, also before it."""
    return f"(unix_micros({time}) - pmod(unix_micros({time}), {unit})) div {unit}"


def _partition_value(value: Any, term: PartitionTerm, schema: Schema) -> Any:
    """Return a value from a report as Iceberg stores it: dates as days since 1970."""
    kind = schema.find_type(term.column)
    if isinstance(value, str) and not term.unit and not isinstance(kind, StringType):
        return (date.fromisoformat(value) - date(1970, 1, 1)).days
    return value


def _numbered(field: pa.Field, numbers: Iterator[int]) -> pa.Field:
    """Return a field with a number, without which the library converts none, and so all that it is made of."""
    number, kind = next(numbers), field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(each, numbers) for each in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers))
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, numbers))
    return pa.field(field.name, kind, field.nullable, {_ID: str(number)})


def _arrow_field(field: NestedField) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.field_type), not field.required, {_ID: str(field.field_id)})


def _arrow_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(each) for each in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_arrow_field(kind.element_field).with_name("element"))
    if isinstance(kind, MapType):
        return pa.map_(_arrow_field(kind.key_field), _arrow_field(kind.value_field))
    found = schema_to_pyarrow(kind)
    small = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return small.get(found, found)
