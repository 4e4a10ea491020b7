"""The declared columns among those of a table, and in its data files.

Files have fields under what the table knows them by: a number, or a name, that stays when a column is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.formats.column_types import is_nested, parts_of, place_of, shown_names
from millrace_jobs.sources.formats.typed_columns import TypedColumn, places_of
from millrace_jobs.sources.static_tables import source_error

FILE_ID = b"PARQUET:field_id"
"""Metadata of a field in a file with its number."""


@dataclass(frozen=True)
class FieldKey:
    """A declared column or field, its key in files, and its parts."""

    name: str
    key: str
    parts: tuple[FieldKey, ...] = ()


@dataclass(frozen=True)
class FieldKeys:
    """The keys of the declared columns."""

    columns: tuple[FieldKey, ...]  # the columns
    by_id: bool = False  # whether the keys are numbers; else names in files
    # the numbers of top-level columns by their names, for files that have no numbers
    names: tuple[tuple[str, str], ...] = ()

    def named(self, stored: pa.Schema) -> pa.Schema:
        """Return the schema of a file with the declared names; others get names that nothing has.

        Raises MillraceError if fields have numbers in the table, and neither the file nor the table says which.
        """
        has_ids = any(self._id(field) for field in stored)
        if self.by_id and not has_ids:
            if not self.names:
                message = "a file of the table has no numbers of fields, and the table no schema.name-mapping.default"
                raise MillraceError(Problem(message, "set that property of the table, or write the file again"))
            known, numbers = {column.key: column for column in self.columns}, dict(self.names)
            found = [known.get(numbers.get(field.name, "")) for field in stored]
            return pa.schema(
                field.with_name(_unknown(place) if column is None else column.name)
                for place, (field, column) in enumerate(zip(stored, found, strict=True))
            )
        return pa.schema(self._named_fields(stored, self.columns))

    def _named_fields(self, stored: pa.Schema | pa.StructType, known: tuple[FieldKey, ...]) -> Iterator[pa.Field]:
        by_key = {part.key: part for part in known}
        for place, field in enumerate(stored):
            part = by_key.get(self._id(field) if self.by_id else field.name)
            if part is None:
                yield field.with_name(_unknown(place))
            else:
                yield field.with_name(part.name).with_type(self._named_type(field.type, part))

    def _named_type(self, stored: pa.DataType, known: FieldKey) -> pa.DataType:
        if not known.parts or not is_nested(stored):
            return stored
        if pa.types.is_struct(stored):
            return pa.struct(list(self._named_fields(stored, known.parts)))
        inner = parts_of(pa.field("", stored))
        if len(inner) != len(known.parts):
            return stored
        parts = [self._named_type(part.type, own) for part, own in zip(inner, known.parts, strict=True)]
        if pa.types.is_map(stored):
            return pa.map_(*parts)
        if pa.types.is_list(stored):
            return pa.list_(stored.value_field.with_type(parts[0]))
        if pa.types.is_large_list(stored):
            return pa.large_list(stored.value_field.with_type(parts[0]))
        return stored

    @staticmethod
    def _id(field: pa.Field) -> str:
        return metadata_of(field, FILE_ID)


def field_keys(declared: pa.Schema, table: pa.Schema, key: bytes) -> tuple[FieldKey, ...]:
    """Return the keys of declared columns, all of which the table has.

    Args:
        declared: the columns of the source; the case of their names does not count.
        table: the columns of the table.
        key: metadata of the table's fields with what its files know them by; without it, that is the name.
    """
    return tuple(_key_of(field, table.field(place_of(field.name, table)), key) for field in declared)


def metadata_of(field: pa.Field, key: bytes, default: str = "") -> str:
    """Return what the metadata of a field say under a key."""
    found: bytes = (field.metadata or {}).get(key, default.encode())
    return found.decode()


def _key_of(declared: pa.Field, found: pa.Field, key: bytes) -> FieldKey:
    own = metadata_of(found, key, found.name)
    if not is_nested(declared.type) or not is_nested(found.type):
        return FieldKey(declared.name, own)
    places = places_of(found.type, declared)
    if places is None:
        return FieldKey(declared.name, own)
    inner, wanted = (  # of a struct, under their own names
        list(kind) if pa.types.is_struct(kind) else parts_of(pa.field("", kind)) for kind in (found.type, declared.type)
    )
    parts = [_key_of(part, inner[place], key) for part, place in zip(wanted, places, strict=True) if place is not None]
    return FieldKey(declared.name, own, tuple(parts))


def _unknown(place: int) -> str:
    return f"\x00{place}"


@dataclass(frozen=True)
class DeclaredColumns:
    """The declared columns of a table."""

    source: str  # name of the source
    schema: pa.Schema  # the declared columns
    table: str  # the table, as messages name it

    def found(self, stored: pa.Schema) -> list[pa.Field]:
        """Return the table's columns for the declared ones; a name in another case is found if it is the only one.

        Raises MillraceError if a column is missing, or its type does not fit.
        """
        places = {name: place_of(name, stored) for name in self.schema.names}
        if missing := [name for name, place in places.items() if place < 0]:
            shown = shown_names(stored.names) or "no columns"
            message = f"{self.table} has no column {', '.join(missing)}; it has {shown}"
            raise self._error(message, "correct the schema")
        found = [stored.field(place) for place in places.values()]
        for column, field in zip(found, self.schema, strict=True):
            typed = TypedColumn(column.type, field, "iso")
            if not typed.fits:
                raise self._error(f"{self.table}: {typed.misfit}", typed.hint)
        return found

    def converted(self, batches: Iterable[pa.RecordBatch], found: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the table with the declared columns. Raises MillraceError if a value does not fit."""
        for batch in batches:
            arrays = []
            for column, field in zip(found, self.schema, strict=True):
                values = batch.column(column.name)
                typed = TypedColumn(values.type, field, "iso")
                try:
                    arrays.append(typed.convert(values))
                except ValueError as error:
                    raise self._error(f"{self.table}: {error}", typed.hint) from None
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _error(self, message: str, hint: str) -> MillraceError:
        field = f"spec.sources.{self.source}.schema"
        return source_error(Problem(f"source {self.source}: {message}", hint, field=field))
