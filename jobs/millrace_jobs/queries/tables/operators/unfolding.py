"""Groups as the rows that they stand for: the rows of a list, or one row several times.

Of what a group stands for before and after a change, only the difference is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millrace_jobs.changes import CHANGE, WEIGHT, changed_periods, changes_of, net, periods
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult


@dataclass(frozen=True)
class ListedRows:
    """The rows of lists, each with the keys of its group; an operator on changes without state.

    Attributes:
        groups: schema of the changes of the groups.
        rows: column with the lists, whose elements are structs.
        columns: fields of these structs, which become columns.
        number: name of a column with the place of a row in its list, from 1; empty without one.
    """

    groups: pa.Schema
    rows: str
    columns: tuple[str, ...]
    number: str = ""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of the groups."""
        return (self.groups,)

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes of the rows: keys, columns, and the number."""
        kind = self.groups.field(self.rows).type.value_type
        fields = [kind.field(kind.get_field_index(name)) for name in self.columns]
        numbers = [pa.field(self.number, pa.int32())] if self.number else []
        keys = [field for field in self.groups if field.name not in (self.rows, *CHANGE.names)]
        return changes_of(pa.schema([*keys, *fields, *numbers]))

    @property
    def lag(self) -> int | None:
        """None: the rows change when the groups do."""
        return None

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Return the rows that a list has gained or lost; a row that is there several times is as many changes."""
        groups = changes[0].combine_chunks()
        lists = groups.column(self.rows).combine_chunks()
        lengths = lists.value_lengths().fill_null(0).to_numpy()
        of_row = np.repeat(np.arange(groups.num_rows), lengths)
        numbers = np.arange(len(of_row)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        structs, repeated = lists.flatten(), groups.take(pa.array(of_row))
        made = {name: repeated.column(name) for name in self.groups.names}
        made |= {name: structs.field(name) for name in self.columns}
        made |= {self.number: pa.array(numbers, pa.int32())}
        rows = pa.Table.from_arrays([made[name] for name in self.output.names], schema=self.output)
        return OperatorResult(_single_changes(rows))


@dataclass(frozen=True)
class RepeatedRows:
    """The keys of groups as rows, each as often as two counts say; an operator on changes without state.

    Attributes:
        groups: schema of the changes of the groups.
        counts: columns with the counts.
        common: whether a row is there as often as the smaller count says; else, as the first is more than the second.
    """

    groups: pa.Schema
    counts: tuple[str, str]
    common: bool

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of the groups."""
        return (self.groups,)

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes of the rows: the keys."""
        return pa.schema([field for field in self.groups if field.name not in self.counts])

    @property
    def lag(self) -> int | None:
        """None: the rows change when the groups do."""
        return None

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Return the rows that have become more or fewer; one that did so several times is as many changes."""
        groups = changes[0].combine_chunks()
        own, other = (groups.column(name).to_numpy() for name in self.counts)
        times = np.minimum(own, other) if self.common else np.maximum(own - other, 0)
        rows = groups.select(self.output.names)
        weights = rows.column(WEIGHT).to_numpy() * times
        return OperatorResult(_single_changes(changed_periods(rows, *periods(rows), weights)))


def _single_changes(rows: pa.Table) -> list[pa.Table]:
    """Return net changes whose weights are 1 and -1, as sinks and joins that have no counts expect them."""
    rows = net(rows)
    weights = rows.column(WEIGHT).to_numpy()
    rows = rows.take(pa.array(np.repeat(np.arange(len(weights)), np.abs(weights))))
    single = changed_periods(rows, *periods(rows), np.sign(rows.column(WEIGHT).to_numpy()))
    return [single] if single.num_rows else []
