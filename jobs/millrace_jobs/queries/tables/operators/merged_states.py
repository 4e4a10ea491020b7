"""States of aggregators as parts of groups: merged by the aggregator's own code, and finished where rows are emitted.

A state is a number to the operator: 0 is no state, those of stored states and rows are their places, from 1, and merged
states follow. Only states that meet are decoded, so a batch pays for the groups that it changes, not for those that are
stored with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.queries.tables.operators.merging import Arrays, Integers


class StateAggregator(Protocol):
    """The aggregator behind a part, as in ``aggregates.in_sql``."""

    @property
    def name(self) -> str:
        """Name of the aggregator in messages."""
        ...

    @property
    def state_type(self) -> pa.DataType:
        """Arrow type of a state."""
        ...

    @property
    def type(self) -> pa.DataType:
        """Arrow type of a result."""
        ...

    def merged(self, one: Any, other: Any) -> Any:
        """Return the state of the records behind both states, which it may reuse."""
        ...

    def encoded(self, states: Iterable[Any]) -> pa.Array:
        """Return states as an array of ``state_type``."""
        ...

    def finished(self, states: pa.Array) -> pa.Array:
        """Return the results of states, as an array of ``type``; NULL is the state of a group without records."""
        ...


@dataclass(frozen=True)
class MergedStates:
    """A column with the state of a row in the input and of a group in the state, and with its result in the output."""

    name: str
    aggregator: StateAggregator
    merge: Literal["its aggregator"] = "its aggregator"

    @property
    def takes_back(self) -> bool:
        """Whether rows can be removed again: an aggregator merges states and has no inverse."""
        return False

    @property
    def type(self) -> pa.DataType:
        """Type of the column in the input."""
        return self.aggregator.state_type

    @property
    def result_type(self) -> pa.DataType:
        """Type of the column in the output."""
        return self.aggregator.type

    @property
    def state(self) -> list[pa.Field]:
        """The column that is stored."""
        return [pa.field(self.name, self.type)]

    def of_rows(self, column: pa.Array) -> list[pa.Array]:
        """Return the stored columns of groups that have one row each."""
        return [column]

    def merger(self, columns: Sequence[pa.Array], weights: Integers) -> StateColumnMerger:
        """Return the merger of stored columns, none of whose rows is taken back."""
        return StateColumnMerger(self.aggregator, columns[0])


class StateColumnMerger:
    """The states of a batch: an array of their numbers; see ``merging.Merger``."""

    identity: Final = 0

    def __init__(self, aggregator: StateAggregator, column: pa.Array) -> None:
        self.ufunc: MergeFunction = MergeFunction(aggregator, column)
        self.arrays: Arrays = [
            np.where(column.is_valid().to_numpy(zero_copy_only=False), np.arange(len(column)) + 1, 0)
        ]

    def settled(self, arrays: Arrays) -> Arrays:
        """Return the arrays; equal states need not have equal numbers, which costs a change that changes nothing."""
        return arrays

    def stored(self, arrays: Arrays) -> list[pa.Array]:
        """Return the column of states."""
        return [self.ufunc.states(arrays[0])]

    def result(self, arrays: Arrays) -> pa.Array:
        """Return the column of results."""
        return self.ufunc.aggregator.finished(self.ufunc.states(arrays[0]))

    def same(self, one: Arrays, other: Arrays) -> NDArray[np.bool_]:
        """Return where the states are the same."""
        equal: NDArray[np.bool_] = one[0] == other[0]
        return equal


class MergeFunction:
    """Function that merges states element by element by their numbers, as far as it is used like a ufunc."""

    def __init__(self, aggregator: StateAggregator, column: pa.Array) -> None:
        self.aggregator = aggregator
        self._column = column
        self._merged: list[Any] = []
        self._encoded: pa.Array | None = None

    def __call__(self, one: Integers, other: Integers) -> Integers:
        """Return the numbers of the merged states."""
        result = np.where(one == 0, other, one)
        for place in np.flatnonzero((one != 0) & (other != 0)):
            result[place] = self._merge(int(one[place]), int(other[place]))
        return result

    def at(self, array: Integers, places: Integers, others: Integers) -> None:
        """Merge states into those at some places of an array, one after the other."""
        for place, other in zip(places.tolist(), others.tolist(), strict=True):
            held = int(array[place])
            array[place] = self._merge(held, other) if held and other else held or other

    def states(self, numbers: Integers) -> pa.Array:
        """Return the states with these numbers; NULL for 0."""
        if self._encoded is None or len(self._encoded) != len(self._column) + len(self._merged):
            self._encoded = pa.concat_arrays([self._column, self.aggregator.encoded(self._merged)])
        return self._encoded.take(pa.array(numbers - 1, mask=numbers == 0))

    def _merge(self, one: int, other: int) -> int:
        self._merged.append(self.aggregator.merged(self._state(one), self._state(other)))
        return len(self._column) + len(self._merged)

    def _state(self, number: int) -> Any:
        stored = len(self._column)
        return self._column[number - 1].as_py() if number <= stored else self._merged[number - stored - 1]
