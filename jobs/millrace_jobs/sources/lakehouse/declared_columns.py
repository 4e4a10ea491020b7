"""Rows of a lakehouse's tables as the declared columns: only these are read, and no value is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import FailureClass
from millrace_jobs.sources.formats.typed_columns import TypedColumn

_NAMES_SHOWN = 20


@dataclass(frozen=True)
class DeclaredColumns:
    """The declared columns of a table.

    Args:
        source: name of the source.
        schema: the declared columns.
        table: the table, as messages name it.
    """

    source: str
    schema: pa.Schema
    table: str

    def found(self, stored: pa.Schema) -> list[pa.Field]:
        """Return the table's columns for the declared ones; a name in another case is found if it is the only one.

        Raises:
            MillraceError: a column is missing, or its type does not fit.
        """
        found, missing = [], []
        for name in self.schema.names:
            same = [each for each in stored if each.name == name]
            same = same or [each for each in stored if each.name.lower() == name.lower()]
            if len(same) == 1:
                found.append(same[0])
            else:
                missing.append(name)
        if missing:
            shown = ", ".join(stored.names[:_NAMES_SHOWN]) + (", ..." if len(stored.names) > _NAMES_SHOWN else "")
            message = f"{self.table} has no column {', '.join(missing)}; it has {shown or 'no columns'}"
            raise self._error(message, "correct the schema")
        for column, field in zip(found, self.schema, strict=True):
            typed = TypedColumn(column.type, field, "iso")
            if not typed.fits:
                raise self._error(f"{self.table}: {typed.misfit}", typed.hint)
        return found

    def converted(self, batches: Iterable[pa.RecordBatch], found: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the table with the declared columns.

        Raises:
            MillraceError: a value does not fit.
        """
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
        error = MillraceError(
            Problem(f"source {self.source}: {message}", hint, field=f"spec.sources.{self.source}.schema")
        )
        error.failure = FailureClass.SOURCE
        return error
