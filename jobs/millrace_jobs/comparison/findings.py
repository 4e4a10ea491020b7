"""What differs between two results, by name: in which rows and columns, and by how much, with a few of the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.changes import FROM, WEIGHT
from millrace_jobs.comparison.digest import digest
from millrace_jobs.comparison.rows import ComparedRows, FinalRows, Indices, compare_rows
from millrace_jobs.shown_values import shown_value

_INTERNAL = {FROM: "valid from", WEIGHT: "times"}
"""How the report calls columns of changes."""


class FindingKind(StrEnum):
    """What differs."""

    COLUMN_GONE = "column gone"
    COLUMN_ADDED = "column added"
    TYPE = "type"
    VALUES = "values"
    ONLY_OLD = "only old"
    ONLY_NEW = "only new"
    OUTPUT_GONE = "output gone"
    OUTPUT_ADDED = "output added"


ALLOWED = frozenset({FindingKind.COLUMN_ADDED, FindingKind.OUTPUT_ADDED})
"""What adds to the results, and leaves those as they are that readers know."""


@dataclass(frozen=True)
class ResultFinding:
    """One difference: its kind, its column if it is in one, in how many rows it is, and a sentence about it."""

    kind: FindingKind
    text: str
    column: str | None = None
    rows: int = 0

    @property
    def is_allowed(self) -> bool:
        """Whether readers of the results need not mind."""
        return self.kind in ALLOWED


@dataclass(frozen=True)
class Example:
    """A row of each version with one key; None for the version that has no such row."""

    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None


@dataclass(frozen=True)
class OutputComparison:
    """The two results of an output; digests are those of the compared columns."""

    field: str
    old_rows: int = 0
    new_rows: int = 0
    old_digest: str = ""
    new_digest: str = ""
    tolerated: int = 0
    findings: tuple[ResultFinding, ...] = ()
    examples: tuple[Example, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that readers mind."""
        return all(each.is_allowed for each in self.findings)


def compare_output(
    name: str,
    old: tuple[FinalRows, Mapping[str, str]],
    new: tuple[FinalRows, Mapping[str, str]],
    *,
    ignored: Collection[str],
    tolerance: float,
    examples: int,
) -> OutputComparison:
    """Compare the results of an output.

    Args:
        name: its field in the spec.
        old: the rows of the old version, and the types of its columns by their names.
        new: those of the new version.
        ignored: columns that may differ.
        tolerance: the relative difference of floats that does not count.
        examples: the number of differing rows to show.
    """
    compared = compare_rows(old[0], new[0], ignored=ignored, tolerance=tolerance)
    findings = [*_of_columns(old[1], new[1], ignored), *_of_values(compared), *_of_rows(compared)]
    return OutputComparison(
        name,
        old[0].rows.num_rows,
        new[0].rows.num_rows,
        digest(compared.old),
        digest(compared.new),
        compared.tolerated,
        tuple(findings),
        tuple(_examples(compared, examples)),
    )


def _of_columns(old: Mapping[str, str], new: Mapping[str, str], ignored: Collection[str]) -> Iterator[ResultFinding]:
    for name in old:
        if name in ignored:
            continue
        if name not in new:
            yield ResultFinding(FindingKind.COLUMN_GONE, f"{name}: the new version has no such column", name)
        elif old[name] != new[name]:
            yield ResultFinding(FindingKind.TYPE, f"{name}: its type is {new[name]}, and was {old[name]}", name)
    for name in new:
        if name not in old and name not in ignored:
            yield ResultFinding(FindingKind.COLUMN_ADDED, f"{name}: the new version adds this column", name)


def _of_values(compared: ComparedRows) -> Iterator[ResultFinding]:
    """Yield the columns that differ between rows of one key."""
    of_old, of_new = compared.changed
    both = _both(compared)
    for name, differs in compared.columns.items():
        old = compared.old.column(name).take(pa.array(of_old[differs]))
        new = compared.new.column(name).take(pa.array(of_new[differs]))
        count = int(differs.sum())
        text = f"{_shown(name)}: {_rows(count)} of {both:,} in both versions differ{_by_how_much(old, new)}"
        yield ResultFinding(FindingKind.VALUES, text, name, count)


def _both(compared: ComparedRows) -> int:
    return int(compared.old.num_rows) - len(compared.only_old)


def _by_how_much(old: pa.ChunkedArray, new: pa.ChunkedArray) -> str:
    """Return what all differing values of a column have in common, as the end of a sentence."""
    for one, other, text in ((old, new, "NULL in the new version"), (new, old, "NULL in the old version")):
        if other.null_count == len(other) and not one.null_count:
            return f": all are {text}"
    if pa.types.is_timestamp(old.type):
        delta = pc.subtract(_micros(new), _micros(old)).drop_null().to_numpy() / 1e6
        return _range(delta, "later", "earlier", " s")
    if pa.types.is_integer(old.type) or pa.types.is_floating(old.type) or pa.types.is_decimal(old.type):
        delta = pc.subtract(new.cast(pa.float64()), old.cast(pa.float64())).drop_null().to_numpy()
        return _range(delta, "more", "less", "")
    return ""


def _range(delta: Any, more: str, less: str, unit: str) -> str:
    delta = delta[np.isfinite(delta)]
    if not len(delta):
        return ""
    low, high = float(delta.min()), float(delta.max())
    if low >= 0 or high <= 0:
        word, ends = (more, (low, high)) if low >= 0 else (less, (-high, -low))
        amount = " to ".join(dict.fromkeys(map(_amount, ends)))
        return f": the new one is {amount}{unit} {word}"
    return f": the new one is {_amount(-low)}{unit} {less} to {_amount(high)}{unit} {more}"


def _amount(value: float) -> str:
    """Return six digits of a number, and all left of the point: 99987100 is easier to read than 9.99871e+07."""
    return f"{value:.0f}" if 1e6 <= value < 1e15 else f"{value:.6g}"


def _of_rows(compared: ComparedRows) -> Iterator[ResultFinding]:
    """Yield the rows that only one version has."""
    old = compared.old.take(pa.array(compared.only_old))
    new = compared.new.take(pa.array(compared.only_new))
    shift = _shift(compared, old, new)
    sides = ((FindingKind.ONLY_OLD, old, compared.new, "old"), (FindingKind.ONLY_NEW, new, compared.old, "new"))
    for kind, rows, others, version in sides:
        if rows.num_rows:
            text = f"only the {version} version has {_rows(rows.num_rows)}"
            text += "".join(_in_common(rows, others, compared.key)) + shift
            yield ResultFinding(kind, text, None, rows.num_rows)


def _in_common(rows: pa.Table, others: pa.Table, key: tuple[str, ...] | None) -> Iterator[str]:
    """Yield what all rows have that the other version lacks."""
    if not others.num_rows:
        yield "; the other one has no rows at all"
        return
    for name in key or rows.schema.names:
        nulls = others.column(name).null_count
        if rows.column(name).null_count == rows.num_rows and nulls < others.num_rows:
            more = "" if nulls else ", and none of the other version's"
            yield f"; all of them have NULL in {_shown(name)}{more}"


def _shift(compared: ComparedRows, old: pa.Table, new: pa.Table) -> str:
    """Return by how much all times of a key are moved, if the rows have the same times otherwise."""
    for name in compared.key or ():
        if not pa.types.is_timestamp(old.column(name).type) or not old.num_rows or not new.num_rows:
            continue
        times = [np.unique(_micros(rows.column(name)).drop_null().to_numpy()) for rows in (old, new)]
        if len(times[0]) == len(times[1]) and len(moved := np.unique(times[1] - times[0])) == 1 and moved[0]:
            word = "later" if moved[0] > 0 else "earlier"
            return f"; {_shown(name)} is {abs(int(moved[0])) / 1e6:g} s {word} in the new version"
    return ""


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())


def _examples(compared: ComparedRows, most: int) -> Iterator[Example]:
    """Yield rows that differ: of each kind about as many, in the order of the old results."""
    of_old, of_new = compared.changed
    kinds: list[tuple[Indices | None, Indices | None, int]] = [
        (of_old, of_new, len(of_old)),
        (compared.only_old, None, len(compared.only_old)),
        (None, compared.only_new, len(compared.only_new)),
    ]
    share = -(-most // max(sum(count > 0 for *_, count in kinds), 1))
    shown = 0
    for old, new, found in kinds:
        count = min(share, most - shown, found)
        shown += count
        for place in range(count):
            yield Example(
                None if old is None else _row(compared.old, old, place),
                None if new is None else _row(compared.new, new, place),
            )


def _row(rows: pa.Table, indices: Indices, place: int) -> dict[str, Any]:
    index = int(indices[place])
    return {_shown(name): shown_value(rows.column(name)[index]) for name in rows.schema.names}


def _shown(name: str) -> str:
    return _INTERNAL.get(name, name)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
