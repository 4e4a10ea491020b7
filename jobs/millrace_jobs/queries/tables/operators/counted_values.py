"""Values of groups whose rows can be taken back: each distinct value with the number of its rows.

No row can be subtracted from a minimum, so the state has all values that a group may fall back to. An *entry* is a
value of a group, the time from which it counts, and the number of rows that it adds there; the number is negative where
rows end. A version has the values of which the entries up to its time add up to more than 0.

**Size.** Entries that the watermark has passed are added up, and removed if they add up to 0. So there is one entry for
each distinct value that a group has, and one for each change since the watermark. Rows of a stream cannot be taken back
once the watermark is ahead of them by the lag of their input. Of these, an extreme *settles*: only the least or the
largest value is kept, so that the state is bounded by the rows that are not final.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import BEGINNING, FROM, normalized
from millrace_jobs.queries.tables.operators.counted_results import Counts, Numbers, RankedLists
from millrace_jobs.queries.tables.operators.merging import (
    Arrays,
    DistinctSum,
    Extreme,
    Integers,
    MergedPart,
    Merger,
    SortOrder,
    has_order,
    ranks_of,
    sum_type,
    words_of,
)
from millrace_jobs.queries.tables.operators.timeline import Timeline
from millrace_jobs.shown_values import shown_value

Mask = NDArray[np.bool_]

CountedFunction = Literal[
    "min", "max", "count_distinct", "sum_distinct", "percentile", "percentile_approx", "top", "bottom"
]
"""What is computed from the values of a group: ``percentile`` interpolates, ``percentile_approx`` is one of them.

The values of ``top`` and ``bottom`` are structs of two fields, by which rows are ordered. Their results are lists of
the second fields of the first rows.
"""

_LISTS = ("top", "bottom")

VALUE: Final = "millrace_value"
"""Column of entries with the value."""

COUNT: Final = "millrace_count"
"""Column of entries with the number of rows."""


@dataclass(frozen=True)
class CountedPart:
    """A column with the value of a row in the input, and with a function of a group's values in the output.

    NULL is not a value.

    Attributes:
        name: the column.
        merge: the function.
        type: type of the values.
        settles_after: how far, in microseconds, the watermark is ahead of the start of rows that cannot be taken back
            any more; None if all can.
        fraction: of a percentile, the share of rows, from 0 to 1, that have at most this value.
        limit: of ``top`` and ``bottom``, the number of rows.
        orders: of ``bottom``, how each field of the first field of the values is sorted, where that is itself a struct;
            empty if all are ascending, with NULL first.
        values_of: another column with the same values, whose entries this one shares; empty if it has its own.
    """

    name: str
    merge: CountedFunction
    type: pa.DataType
    settles_after: int | None = None
    fraction: float = 0.5
    limit: int = 1
    values_of: str = ""
    orders: tuple[SortOrder, ...] = ()

    def __post_init__(self) -> None:
        if not has_order(self.type):
            raise ValueError(f"column {self.name!r} of type {self.type} has no {self.merge}: use a type with an order")
        if self.settles and self.merge not in ("min", "max", *_LISTS):
            raise ValueError(f"all values of column {self.name!r} count in a {self.merge}: set settles_after=None")
        if self.merge == "percentile" and not pa.types.is_float64(self.type):
            raise ValueError(f"a percentile of column {self.name!r} cannot be of type {self.type}: cast it to double")
        if self.merge in _LISTS and not (pa.types.is_struct(self.type) and self.type.num_fields == 2):
            raise ValueError(
                f"the {self.merge} of column {self.name!r} is of structs of two fields: not of {self.type}"
            )
        if self.orders and (self.merge != "bottom" or self.type.field(0).type.num_fields != len(self.orders)):
            raise ValueError(
                f"the {self.merge} of column {self.name!r} has no field for each of its orders: leave them out"
            )
        if self.limit < 1:
            raise ValueError(f"a list of rows has at least one: {self.limit}: use a larger limit")
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"the fraction of a percentile is from 0 to 1: {self.fraction}")

    @property
    def takes_back(self) -> bool:
        """Whether rows can be removed again."""
        return True

    @property
    def settles(self) -> bool:
        """Whether values that cannot be taken back are replaced by their extreme."""
        return self.settles_after is not None

    @property
    def result_type(self) -> pa.DataType:
        """Type of the column in the output."""
        if self.merge in _LISTS:
            return pa.list_(self.type.field(1).type)
        if self.merge == "sum_distinct":
            return sum_type(self.type)
        return pa.int64() if self.merge == "count_distinct" else self.type

    @property
    def state(self) -> list[pa.Field]:
        """The column that is stored with a version of a group: the result; of a list, the structs."""
        return [pa.field(self.name, pa.list_(self.type) if self.merge in _LISTS else self.result_type)]

    def entries(self, keys: pa.Schema) -> pa.Schema:
        """Return the schema of the entries of groups with these keys."""
        return pa.schema([*keys, (VALUE, self.type), (FROM, pa.int64()), (COUNT, pa.int64())])

    def of_rows(self, column: pa.Array) -> list[pa.Array]:
        """Return the stored column for rows, whose values are entries."""
        return [pa.nulls(len(column), self.state[0].type)]

    def merger(self, results: pa.Array, values: pa.Array) -> tuple[Merger, Integers]:
        """Return the merger of stored results, and a number for each value by which values are compared."""
        if self.merge == "count_distinct":
            return Counts(results), ranks_of(normalized(values))
        if self.merge == "sum_distinct" and not pa.types.is_floating(self.result_type):
            whole = MergedPart(self.name, "sum", self.result_type)
            return DistinctSum(whole, results), ranks_of(values)
        if self.merge in ("percentile", "sum_distinct"):
            return Numbers(results), ranks_of(normalized(values))
        if self.merge in _LISTS:
            lists = RankedLists(results, values, self.limit, self.orders)
            return lists, lists.ranks
        merger = Extreme("min" if self.merge == "min" else "max", normalized(pa.concat_arrays([results, values])))
        (ranks,) = merger.arrays
        merger.arrays = [ranks[: len(results)]]
        return merger, ranks[len(results) :]


@dataclass(frozen=True)
class Entries:
    """Entries of the groups of a batch, as arrays of shape ``(entries,)``.

    ``groups`` are the groups' numbers in the timeline, and ``slots`` the slots that have them.
    """

    values: pa.Array
    groups: Integers
    starts: Integers
    counts: Integers
    slots: Integers


class CountedValues:
    """The values of a part in the versions of the groups of a batch.

    Args:
        part: the part.
        results: the part's stored column of the held versions, and of the rows of the batch.
        entries: the entries that were held, and those of the batch.
        timeline: the versions of the groups.
    """

    def __init__(self, part: CountedPart, results: pa.Array, entries: Entries, timeline: Timeline) -> None:
        self._part, self._entries, self._timeline = part, entries, timeline
        self.merger, self._ranks = part.merger(results, entries.values)

    def merged(self, *, versions: bool) -> Arrays:
        """Return the part's arrays for each version, of which there is one for each group without ``versions``.

        Raises ValueError if more rows with a value are removed than were added.
        """
        entries, timeline = self._entries, self._timeline
        starts = entries.starts if versions else np.full(len(entries.starts), BEGINNING)
        first = timeline.from_start(entries.groups, starts)
        order = np.lexsort((first, self._ranks, entries.groups))
        groups, ranks, first = entries.groups[order], self._ranks[order], first[order]
        is_new = _changes(groups, ranks)
        counts = _sums_within(entries.counts[order], is_new)
        last = np.where(np.append(is_new[1:], True)[: len(order)], timeline.end(groups), np.roll(first, -1))
        covers = last > first
        if (counts[covers] < 0).any():
            value = shown_value(entries.values[order[covers][np.argmin(counts[covers])]])
            raise ValueError(
                f"more rows with {value} in column {self._part.name!r} are removed from a group than were added: send "
                "each change exactly once"
            )
        present = covers & (counts > 0)
        first, last, ranks = first[present], last[present], ranks[present]
        if self._part.merge == "count_distinct":
            return [timeline.numbers(first, last)]
        if self._part.merge == "sum_distinct":
            return self._sums(entries.values.take(pa.array(order[present])), first, last)
        if self._part.merge in ("percentile", "percentile_approx"):
            return self._percentiles(first, last, ranks, counts[present])
        if self._part.merge in _LISTS:
            return self._lists(first, last, ranks, counts[present])
        return [timeline.covered(self.merger.ufunc, self.merger.identity, first, last, ranks)]

    def _sums(self, values: pa.Array, first: Integers, last: Integers) -> Arrays:
        """Return the arrays of a sum of distinct values, each in a range of versions."""
        numbers, kind = self._timeline.numbers(first, last), self._part.result_type
        if not pa.types.is_floating(kind):
            return [*(self._timeline.sums(first, last, word) for word in words_of(values.cast(kind))), numbers]
        lengths = last - first  # a sum of floats from which others are subtracted would not be that of its own values
        versions = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        sums = np.zeros(len(self._timeline.row))
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(sums, versions, np.repeat(normalized(values.cast(kind)).to_numpy(), lengths))
        return [sums, (numbers > 0).astype(np.int64)]

    def _lists(self, first: Integers, last: Integers, ranks: Integers, counts: Integers) -> Arrays:
        """Return the arrays of lists, from the values that versions have, each with its number of rows."""
        lengths = last - first
        versions = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        ranks, counts = np.repeat(ranks, lengths), np.repeat(counts, lengths)
        order = np.lexsort((-ranks if self._part.merge == "top" else ranks, versions))
        versions, ranks, counts = versions[order], ranks[order], counts[order]
        before = _sums_within(counts, _changes(versions)) - counts
        copies = np.clip(self._part.limit - before, 0, counts)
        rows = np.repeat(np.arange(len(copies)), copies)
        places = before[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
        made = np.zeros((self._part.limit, len(self._timeline.row)), np.int64)
        made[places, versions[rows]] = ranks[rows]
        return list(made)

    def _percentiles(self, first: Integers, last: Integers, ranks: Integers, counts: Integers) -> Arrays:
        """Return the arrays of a percentile, from the values that versions have, each with its number of rows."""
        ordered = OrderedRows(first, last, ranks, counts, len(self._timeline.row))
        rows, fraction = ordered.rows, self._part.fraction
        has_rows = rows > 0
        versions = np.flatnonzero(has_rows)

        def at(place: Integers) -> Integers:
            """Return the rank of the row at a place, from 0, in each version that has rows."""
            return ordered.ranks_at(versions, place[has_rows])

        if self._part.merge == "percentile_approx":
            found = np.zeros(len(rows), np.int64)
            found[has_rows] = at(np.maximum(np.ceil(fraction * rows).astype(np.int64), 1) - 1)
            return [found]
        values = np.zeros(int(self._ranks.max(initial=0)) + 1)
        values[self._ranks] = self._entries.values.to_numpy()
        place = fraction * np.maximum(rows - 1, 0)
        lower, higher = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        low, high, share = values[at(lower)], values[at(higher)], (place - lower)[has_rows]
        result = np.zeros(len(rows))
        with np.errstate(invalid="ignore"):
            result[has_rows] = np.where(low == high, low, (1 - share) * low + share * high)
        result[has_rows] = np.where(share == 0, low, result[has_rows])
        return [result, has_rows.astype(np.int64)]

    def stored(self, is_collapsed: Callable[[Integers], Mask], closed: Mask) -> Entries:
        """Return the entries to store.

        Args:
            is_collapsed: returns which entries count in all versions that can still change, by their starts.
            closed: which versions are of groups that can no longer change, shape ``(versions,)``.
        """
        entries = self._entries
        rows = np.flatnonzero(~closed[self._timeline.begin(entries.groups)])
        starts = entries.starts[rows]
        starts = np.where(is_collapsed(starts), BEGINNING, starts)
        order = np.lexsort((starts, self._ranks[rows], entries.groups[rows]))
        rows, starts = rows[order], starts[order]
        is_new = _changes(entries.groups[rows], self._ranks[rows], starts)
        counts = np.add.reduceat(entries.counts[rows], np.flatnonzero(is_new)) if len(rows) else entries.counts[rows]
        rows, starts = rows[is_new][counts != 0], starts[is_new][counts != 0]
        counts = counts[counts != 0]
        if self._part.settles:
            kept = self._unsettled(entries.groups[rows], starts, counts)
            rows, starts, counts = rows[kept], starts[kept], counts[kept]
        return Entries(entries.values.take(pa.array(rows)), entries.groups[rows], starts, counts, entries.slots[rows])

    def _unsettled(self, groups: Integers, starts: Integers, counts: Integers) -> Mask:
        """Return which entries, in order, are not settled or are the first ones of those that are."""
        settled = np.flatnonzero(starts == BEGINNING)
        if self._part.merge in ("max", "top"):
            settled = settled[::-1]
        before = _sums_within(counts[settled], _changes(groups[settled])) - counts[settled]
        kept: Mask = starts != BEGINNING
        kept[settled[before < self._part.limit]] = True
        return kept


class OrderedRows:
    """The rows of versions in the order of their ranks, as a wavelet matrix over the changes from version to version.

    A value adds its rows in its first version, and takes them back after its last one. What versions have is nowhere
    listed: time and memory go by the number of values and versions times the number of bits of a rank.

    G. Navarro, F. Claude, A. Ordonez: The wavelet matrix. Information Systems 47 (2015).

    Args:
        first: the first version that has a value.
        last: the first version after it that does not.
        ranks: the rank of the value, from 0.
        counts: its number of rows; all arrays have shape ``(values,)``.
        versions: the number of versions.
    """

    def __init__(self, first: Integers, last: Integers, ranks: Integers, counts: Integers, versions: int) -> None:
        at = np.concatenate([first, last])
        order = np.argsort(at, kind="stable")
        self._at = at[order]
        self._ranks, self._counts = np.concatenate([ranks, ranks])[order], np.concatenate([counts, -counts])[order]
        self.rows: Integers = np.append(0, np.cumsum(self._counts))[self._changes_until(np.arange(versions))]
        """Number of rows of each version, shape ``(versions,)``."""

    def ranks_at(self, versions: Integers, places: Integers) -> Integers:
        """Return the ranks of rows, each at a place, from 0, among the rows of a version; shape ``(places,)``."""
        found = np.zeros(len(places), np.int64)
        begin, end = np.zeros(len(places), np.int64), self._changes_until(versions)
        ranks, counts = self._ranks, self._counts
        for bit in reversed(range(int(ranks.max(initial=0)).bit_length())):
            is_high = ranks >> bit & 1 == 1
            low = np.append(0, np.cumsum(~is_high))
            rows = np.append(0, np.cumsum(np.where(is_high, 0, counts)))
            rows_below = rows[end] - rows[begin]
            goes_up = places >= rows_below
            places = places - np.where(goes_up, rows_below, 0)
            found += goes_up.astype(np.int64) << bit
            begin, end = (np.where(goes_up, low[-1] + each - low[each], low[each]) for each in (begin, end))
            order = np.argsort(is_high, kind="stable")
            ranks, counts = ranks[order], counts[order]
        return found

    def _changes_until(self, versions: Integers) -> Integers:
        """Return the number of changes up to each version."""
        return np.searchsorted(self._at, versions, side="right")


def _changes(*columns: Integers) -> Mask:
    """Return where one of some columns differs from the element before."""
    changed = np.zeros(len(columns[0]), bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _sums_within(values: Integers, is_new: Mask) -> Integers:
    """Return the running sums of values, which begin again where ``is_new``."""
    sums = np.cumsum(values)
    begins = np.flatnonzero(is_new)
    before = np.append(0, sums)[begins]
    within: Integers = sums - np.repeat(before, np.diff(np.append(begins, len(values))))
    return within
