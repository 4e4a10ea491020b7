"""Aggregators that the SQL of a query calls, beside Spark's own aggregates.

The n-th argument of a call is the n-th of the aggregator's ``columns``. A state is a struct with the fields of its
``state_schema``; NULL is the state of a group without records. Workers ship a column of states beside the parts of
other aggregates (``reducing``), and the operators on tables merge and finish them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.aggregates.protocol import Aggregator, State, describe_error, field_array
from millrace_jobs.pending import OngoingCall, own_code


def field_of(name: str) -> str:
    """Return the field of an aggregator in the spec."""
    return f"spec.query.aggregates.{name}"


@dataclass(frozen=True)
class SqlAggregator:
    """An aggregator under the name by which the SQL calls it; it can be pickled.

    Its methods raise MillraceError for what the user's code raises, and for states and results that do not fit their
    schemas.

    Attributes:
        name: its name in the SQL, in lower case.
        path: the class, ``module:Name``.
        aggregator: the aggregator, made with its options.
    """

    name: str
    path: str
    aggregator: Aggregator

    @property
    def arguments(self) -> tuple[str, ...]:
        """The aggregator's names for the arguments of a call, in order."""
        return tuple(dict.fromkeys(self.aggregator.columns))

    @property
    def state_type(self) -> pa.DataType:
        """Arrow type of a state."""
        return pa.struct(list(self.aggregator.state_schema))

    @property
    def type(self) -> pa.DataType:
        """Arrow type of a call's value: that of the only field of a result, or a struct of all fields."""
        fields = list(self.aggregator.result_schema)
        return fields[0].type if len(fields) == 1 else pa.struct(fields)

    def reduced(self, arguments: pa.Table, rows: pa.ListArray) -> pa.Array:
        """Return the states of groups; ``rows`` has the numbers of the rows of each, of which there is at least one."""
        if not len(rows):
            return self.encoded([])
        (batch,) = arguments.rename_columns(list(self.arguments)).take(rows.flatten()).combine_chunks().to_batches()
        offsets = _offsets(rows)
        with self._running("update", "reducing records by key") as call:
            states = [
                self.aggregator.update(self.aggregator.init(), batch.slice(begin, end - begin))
                for call.calls, (begin, end) in enumerate(pairwise(offsets), 1)
            ]
        return self.encoded(states)

    def reduced_again(self, states: pa.Array, rows: pa.ListArray) -> pa.Array:
        """Return the states of groups, each merged from those of the rows with these numbers; NULL if all are NULL."""
        held, offsets = states.take(rows.flatten()), _offsets(rows)
        places, merged = offsets[: len(rows)], list[State]()
        for group, (begin, end) in enumerate(pairwise(offsets)):
            parts = [state for state in held[begin:end].to_pylist() if state is not None] if end - begin > 1 else []
            if parts:
                places[group] = len(held) + len(merged)
                merged.append(reduce(self.merged, parts))
        return pa.concat_arrays([held, self.encoded(merged)]).take(pa.array(places, pa.int64())) if merged else held

    def merged(self, one: State, other: State) -> State:
        """Return the state of the records behind both states, which the aggregator may reuse."""
        with self._running("merge", "merging states", 1):
            return self.aggregator.merge(one, other)

    def encoded(self, states: Iterable[State]) -> pa.Array:
        """Return states as an array."""
        return self._array(list(states), self.aggregator.state_schema, "state")

    def finished(self, states: pa.Array) -> pa.Array:
        """Return the values of calls for groups with these states."""
        with self._running("finish", "computing results") as call:
            results = [
                self.aggregator.finish(self.aggregator.init() if state is None else state)
                for call.calls, state in enumerate(states.to_pylist(), 1)
            ]
        values = self._array(results, self.aggregator.result_schema, "result")
        return values.field(0) if len(self.aggregator.result_schema) == 1 else values

    def _array(self, rows: list[State], schema: pa.Schema, what: str) -> pa.StructArray:
        try:
            arrays = [field_array(rows, field, what) for field in schema]
        except MillraceError as error:
            (problem,) = error.problems
            raise self._problem(f"does not keep to its schema: {problem.message}", problem.hint) from None
        return pa.StructArray.from_arrays(arrays, fields=list(schema))

    @contextmanager
    def _running(self, method: str, doing: str, calls: int = 0) -> Iterator[OngoingCall]:
        """Mark the calls of a method, and name the aggregator and the method in what its code raises."""
        try:
            with own_code(self.path, doing, method, calls) as call:
                yield call
        except Exception as error:
            hint = "correct it, then run the same command again: nothing is lost"
            raise self._problem(f"failed in {method}: {describe_error(error)}", hint) from error

    def _problem(self, message: str, hint: str) -> MillraceError:
        return MillraceError(
            Problem(f"the aggregator {self.name} ({self.path}) {message}", hint, field=field_of(self.name))
        )


def _offsets(rows: pa.ListArray) -> list[int]:
    """Return where the row numbers of each group begin in those of all, and where those of the last end."""
    offsets: list[int] = rows.offsets.to_pylist() or [0]
    return [offset - offsets[0] for offset in offsets]
