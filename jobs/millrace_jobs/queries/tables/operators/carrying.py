"""An operator whose input is read again behind it: it passes the rows on, beside the changes that it makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.changes import CHANGE, changes_of, values_of
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult, TableOperator

READ: pa.Field = pa.field("millrace_read", pa.bool_())
"""Value column that says whether the operator reads a row."""

CARRIED: pa.Field = pa.field("millrace_carried", pa.bool_())
"""Value column that says whether a row is passed on; of the result, whether it has been."""


@dataclass(frozen=True)
class Carrying:
    """An operator on one input, beside columns of the input that are passed on as they are, in the same batch.

    A row of the result has the values of the operator's own, or those that are carried; the others are NULL.
    """

    operator: TableOperator
    carried: pa.Schema

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the rows: the operator's values, those that are carried, and who reads them."""
        (own,) = self.operator.inputs
        return (changes_of(pa.schema([*values_of(own), *self.carried, READ, CARRIED])),)

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes of both."""
        fields = [*values_of(self.operator.output), *self.carried]
        return changes_of(pa.schema([*(field.with_nullable(True) for field in fields), CARRIED]))

    @property
    def lag(self) -> int | None:
        """The lag of the operator, which includes that of its input."""
        return self.operator.lag

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Apply the rows that the operator reads, and pass on those that are carried; see ``TableOperator``."""
        (rows,) = changes
        (own,) = self.operator.inputs
        result = self.operator.process(store, [rows.filter(rows.column(READ.name)).select(own.names)], watermark)
        carried = rows.filter(rows.column(CARRIED.name)).select([*self.carried.names, *CHANGE.names])
        result.changes = self._both(result.changes, carried)
        return result

    def _both(self, made: Iterable[pa.Table], carried: pa.Table) -> Iterator[pa.Table]:
        for table in made:
            yield self._widened(table, carried=False)
        yield self._widened(carried, carried=True)

    def _widened(self, rows: pa.Table, *, carried: bool) -> pa.Table:
        """Return rows with all columns of the output."""
        columns = []
        for field in self.output:
            if field.name == CARRIED.name:
                columns.append(pa.repeat(pa.scalar(carried), rows.num_rows))
            elif field.name in rows.schema.names:
                columns.append(pc.cast(rows.column(field.name), field.type))
            else:
                columns.append(pa.nulls(rows.num_rows, field.type))
        return pa.Table.from_arrays(columns, schema=self.output)
