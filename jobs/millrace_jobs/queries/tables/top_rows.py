"""Translation of ``row_number() OVER (...)`` with a largest number: the first rows of each partition.

The SELECT is translated without the number, and with columns for what it partitions, sorts and filters by. The first
rows of a partition are then a list, an aggregate like any: ``operators.listed_rows`` makes rows of it again. Rows that
tie are sorted by their other columns, so that the result does not depend on the order in which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql.types import DataType, IntegerType, TimestampType
from sqlglot import exp

from millrace_api.sql.dialect import parse_expression, start_of, to_sql
from millrace_api.sql.groups import is_window
from millrace_api.sql.join_conditions import conjuncts
from millrace_api.sql.top_rows import MOST_ROWS, is_bound, is_row_number, last_row, row_numbers
from millrace_jobs.aggregates.builtin import is_ordered, is_scalar
from millrace_jobs.queries.sql_aggregates import NotRoutableError, parse_window, without_aliases
from millrace_jobs.queries.tables.operators.merging import SortOrder
from millrace_jobs.queries.tables.relations import (
    WINDOW,
    Closing,
    Grouping,
    GroupPart,
    Relation,
    Selection,
    TopRows,
    contents_of,
)
from millrace_jobs.queries.tables.scopes import Name, NotATableQueryError, Scope, with_labels
from millrace_jobs.windows import Window

_HIDDEN = "millrace_top_"
_KEY, _ORDER, _FILTER, _PLACE = (f"{_HIDDEN}{kind}" for kind in ("key", "order", "filter", "number"))
_TIME = f"{_HIDDEN}time"


@dataclass(frozen=True)
class NumberedSelect:
    """A SELECT with ``row_number() OVER (...)``.

    Attributes:
        plain: the SELECT without it, QUALIFY and DISTINCT, and with further columns: what it partitions and sorts by,
            what QUALIFY asks beside the number, and a column in each place of the number.
        names: the names of the number, one for each such place.
        window: the call of ``window`` that it partitions records by, or None; a window of groups is a column of these.
        orders: how rows are sorted.
        last: the largest number.
        numbered: conditions on the number, which is a column of its own.
        start: the place of the number in the SQL.
    """

    plain: exp.Select
    names: tuple[str, ...]
    window: exp.Expr | None
    orders: tuple[SortOrder, ...]
    last: int
    numbered: tuple[exp.Expr, ...]
    start: int | None


def numbered_select(select: exp.Select) -> NumberedSelect | None:
    """Return a SELECT with the number of its rows taken apart; None if it has none.

    Raises:
        NotATableQueryError: it has another OVER clause, or a number without an order or a largest value.
    """
    windows = row_numbers(select)
    others = [each for each in select.find_all(exp.Window) if each.find_ancestor(exp.Select) is select]
    for window in others:
        if not is_row_number(window):
            reason, hint = f"it has {to_sql(window)}", "write GROUP BY for totals, and row_number() for the first rows"
            raise NotATableQueryError(reason, hint, start_of(window))
    if not windows:
        return None
    window, start = windows[0], start_of(windows[0])
    if len({to_sql(each) for each in windows}) > 1:
        raise NotATableQueryError("it numbers its rows in two orders", "write a SELECT for each", start)
    last, order = last_row(select), window.args.get("order")
    if order is None:
        raise NotATableQueryError("its row_number() has no order", "write OVER (PARTITION BY ... ORDER BY ...)", start)
    if last is None or last > MOST_ROWS:
        reason = "its row_number() has no largest number" if last is None else f"it asks for the first {last} rows"
        hint = f"add QUALIFY row_number() OVER (...) <= 10; at most {MOST_ROWS} rows are possible"
        raise NotATableQueryError(reason, hint, start)
    plain = select.copy()
    for clause in ("qualify", "distinct"):
        plain.set(clause, None)
    items: list[exp.Expr] = []
    names: list[str] = []
    for item in plain.expressions:
        if is_row_number(item.unalias()):
            items.append(_named(parse_expression("0"), _PLACE, len(names)))
            names.append(item.alias)
        elif any(map(is_row_number, item.walk())):
            reason = f"it computes {to_sql(item.unalias())} from the number of a row"
            raise NotATableQueryError(reason, "compute it in a SELECT around this one", start)
        else:
            items.append(item)
    numbered, others_asked = _qualify(select, {name.lower() for name in names if name}, max(last, 1))
    if window.find_ancestor(exp.Qualify):  # where aliases of the SELECT list are known
        written = without_aliases(exp.Tuple(expressions=[window.copy(), *others_asked]), _aliases(select))
        window, *others_asked = written.expressions
        order = window.args["order"]
    else:
        others_asked = [without_aliases(each, _aliases(select)) for each in others_asked]
    partitions = list(window.args.get("partition_by") or ())
    windows_of_rows = [] if select.args.get("group") else [each for each in partitions if is_window(each)]
    if len(windows_of_rows) > 1:
        raise NotATableQueryError("its PARTITION BY has two windows", "partition by one of them", start)
    items += [_named(each.expressions[0], _TIME, 0) for each in windows_of_rows]
    keys = [each for each in partitions if each not in windows_of_rows]
    items += [_named(each, _KEY, place) for place, each in enumerate(keys)]
    items += [_named(each.this, _ORDER, place) for place, each in enumerate(order.expressions)]
    items += [_named(each, _FILTER, place) for place, each in enumerate(others_asked)]
    plain.set("expressions", items)
    orders = tuple(
        SortOrder(bool(each.args.get("desc")), bool(each.args.get("nulls_first"))) for each in order.expressions
    )
    of_rows = windows_of_rows[0] if windows_of_rows else None
    return NumberedSelect(plain, tuple(names), of_rows, orders, max(last, 1), tuple(numbered), start)


def _aliases(select: exp.Select) -> dict[str, exp.Expr]:
    """Return the aliases of the SELECT list that no table has, whose columns would be taken for fields of them."""
    items = [item for item in select.expressions if isinstance(item, exp.Alias) and item.find(exp.Window) is None]
    read = [part.this for part in (select.args.get("from_"), *(select.args.get("joins") or ())) if part is not None]
    tables = {table.alias_or_name.lower() for table in read}
    return {item.alias.lower(): item.this for item in items if item.alias.lower() not in tables}


def _named(node: exp.Expr, kind: str, place: int) -> exp.Expr:
    return exp.alias_(node.copy(), f"{kind}{place}")


def _qualify(select: exp.Select, names: set[str], last: int) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the conditions of QUALIFY on the number that ask for more than a last one, and those on other columns."""
    qualify = select.args.get("qualify")
    numbered: list[exp.Expr] = []
    others: list[exp.Expr] = []

    def is_number(node: exp.Expr) -> bool:
        return is_row_number(node) or (isinstance(node, exp.Column) and not node.table and node.name.lower() in names)

    for part in conjuncts(qualify.this if qualify is not None else None):
        if not any(map(is_number, part.walk())):
            others.append(part)
            continue
        written = part.copy().transform(lambda node: exp.column(_PLACE) if is_number(node) else node)
        if any(column.name != _PLACE for column in written.find_all(exp.Column)):
            reason = f"its QUALIFY compares the number of a row with columns: {to_sql(part)}"
            raise NotATableQueryError(reason, "write that in the WHERE of a SELECT around this one", start_of(part))
        if not is_bound(part, last, is_number):
            numbered.append(written)
    return numbered, others


@dataclass(frozen=True)
class TopRowsTranslation:
    """The translation of the first rows of partitions.

    Args:
        types: types of all internal columns; those of the result are added.
        internal: returns a new internal name for what the query calls so.
        labels: what the query calls the internal columns; those that it has no names for are called by their SQL.
        final: whether only rows that can no longer change are wanted.
    """

    types: dict[str, DataType]
    internal: Callable[[str], str]
    labels: dict[str, str]
    final: bool

    def result(self, rows: Scope, select: NumberedSelect) -> Scope:
        """Return the first rows of each partition.

        Args:
            rows: the rows of ``select.plain``.
            select: what is numbered.

        Raises:
            NotATableQueryError: columns cannot be sorted, or rows of a partition are never final.
        """
        assert isinstance(rows.relation, Selection)
        first: dict[str, str] = {}  # a column that is there twice is kept once
        same = {name: first.setdefault(sql, name) for sql, name in rows.relation.items}
        self.labels.update(
            (name, with_labels(sql, self.labels))
            for sql, name in rows.relation.items
            if self.labels[name].startswith(_HIDDEN)
        )
        hidden = [name for name in rows.names if name.column.startswith(_HIDDEN)]
        shown = tuple(name for name in rows.names if name not in hidden)

        def columns(names: list[Name]) -> list[str]:
            parts = (part for name in names for part in (name.internal, name.end) if part)
            return list(dict.fromkeys(same[part] for part in parts))

        keys = columns([name for name in hidden if name.column.startswith(_KEY)])
        sorted_by = [name for name in hidden if name.column.startswith(_ORDER)]
        by = [
            (same[part], order)
            for name, order in zip(sorted_by, select.orders, strict=True)
            for part in filter(None, (name.internal, name.end))
        ]
        asked = [same[name.internal] for name in hidden if name.column.startswith(_FILTER)]
        others = [each for each in columns(list(shown)) if each not in keys]
        others += [each for each in asked if each not in (*keys, *others)]
        for column in (*keys, *(each for each, _ in by), *others):
            kind = self.types[column].simpleString()
            if not (is_scalar(kind) if column in keys else is_ordered(kind)):
                reason = f"its row_number() compares {column}, which is of type {kind}"
                raise NotATableQueryError(reason, "leave that column out, or CAST it to STRING", select.start)
        times = [same[name.internal] for name in hidden if name.column.startswith(_TIME)]
        window = self._window(times[0], select.window) if select.window is not None else None
        grouping = self._groups(rows, keys, window, self._part(by, others, select.last))
        number = self.internal(next((name for name in select.names if name), "row_number()"))
        self.types[number] = IntegerType()
        order = ", ".join(f"{column}{' DESC' if each.descending else ''}" for column, each in by)
        top = TopRows(grouping, tuple(others), number, order)
        where = [f"({to_sql(_over(part, number))})" for part in select.numbered] + [f"({each})" for each in asked]
        names = [
            replace(name, internal=same[name.internal], end=same[name.end] if name.end else "") for name in rows.names
        ]
        made: list[Name] = []
        again: list[tuple[str, str]] = []  # a column of the result that is there twice has a name of its own for each
        for name, label in zip(names, (self.labels[name.internal] for name in rows.names), strict=True):
            if name.column.startswith(_PLACE):
                label = select.names[int(name.column.removeprefix(_PLACE))] or "row_number()"
                name = Name("", label.lower(), number)
            elif name.column.startswith(_HIDDEN):
                continue
            taken = {part for each in made for part in (each.internal, each.end)}
            renamed = {part: self.internal(label) for part in (name.internal, name.end) if part and part in taken}
            self.types.update((new, self.types[part]) for part, new in renamed.items())
            again += renamed.items()
            made.append(
                replace(
                    name,
                    **{part: renamed.get(getattr(name, part), getattr(name, part)) for part in ("internal", "end")},
                )
            )
        visible = {part for name in made for part in (name.internal, name.end)}
        primary = tuple(name for _, name in grouping.keys)
        found = [primary] if select.last == 1 else [(*primary, number)]
        found += [tuple(dict.fromkeys(same[part] for part in key)) for key in rows.keys if set(key) <= same.keys()]
        # a window takes rows until its end, whatever other times are in the partition
        wait = 0 if window is None or grouping.closing is None else window.size + grouping.closing.lag
        bounds = {same[name]: lag + wait + 1 for name, lag in rows.closings.items() if same.get(name) in keys}
        relation: Relation = Selection(top, " AND ".join(where)) if where else top
        if again:
            shown_once = sorted(visible - {"", *(new for _, new in again)}, key=lambda each: int(each[1:]))
            relation = Selection(relation, "", (*((each, each) for each in shown_once), *again))
        return Scope(
            relation,
            tuple(made),
            contents_of(top),
            bounds=bounds,
            keys=tuple(key for key in found if visible.issuperset(key)),
            lag=grouping.result_lag,
        )

    def _part(self, by: list[tuple[str, SortOrder]], others: list[str], last: int) -> GroupPart:
        """Return the list of the first rows, which are sorted by some columns and then by others."""
        fields = ", ".join(f"'{name}', {name}" for name in others) or "'none', 0"
        sorted_by = ", ".join(f"'by{place}', {name}" for place, (name, _) in enumerate(by))
        sql = f"named_struct('by', named_struct({sorted_by}), 'row', named_struct({fields}))"
        name = f"{_HIDDEN}rows"  # names the state, which stays where the source gets another column
        return GroupPart(sql, name, "bottom", counted=True, limit=last, orders=tuple(order for _, order in by))

    def _window(self, time: str, call: exp.Expr) -> Window:
        timestamps = {time} if isinstance(self.types[time], TimestampType) else set[str]()
        resolved = call.copy()
        resolved.set("expressions", [exp.column(time), *resolved.expressions[1:]])
        try:
            return parse_window(resolved, timestamps)
        except NotRoutableError as reason:
            raise NotATableQueryError(str(reason), "partition by window(at, '1 minute')", start_of(call)) from None

    def _groups(self, rows: Scope, keys: list[str], window: Window | None, part: GroupPart) -> Grouping:
        closings = rows.closings
        pairs = [(name, name) for name in keys]
        found = [(closings[name], f"unix_micros(CAST({name} AS TIMESTAMP)) + 1L") for name in keys if name in closings]
        if window is not None:
            ends = {f"{WINDOW}.{end}": self.internal(f"window.{end}") for end in ("start", "end")}
            self.types.update(dict.fromkeys(ends.values(), TimestampType()))
            pairs = [*ends.items(), *pairs]
            if window.column in closings:
                found = [(closings[window.column], f"unix_micros({WINDOW}.end)")]
        closing = Closing(min(found)[1], min(found)[0]) if found else None
        if self.final and closing is None:
            raise NotATableQueryError(
                "the first rows of a partition without a window or event time are never final",
                "add a window to PARTITION BY, or write emit: OnUpdate",
            )
        return Grouping(rows.relation, tuple(pairs), window, closing, (part,), self.final, rows.lag, replaces=False)


def _over(condition: exp.Expr, number: str) -> exp.Expr:
    return condition.copy().transform(lambda node: exp.column(number) if isinstance(node, exp.Column) else node)
