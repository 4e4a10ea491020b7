"""Relations that both sides of a join read, such as a CTE that is read twice: computed for each side, or once for both.

Spark plans whatever a query reads twice as two plans, each with a state of its own. So a relation is computed once only
where its readers meet in one stage, to which its changes are sent once with the columns of both readers (``Fork``):

- in a join whose sides read it, each by its own filters and projections; or
- in a join of which one side is a grouping of the relation. The relation's changes then go through the stage of the
  grouping, which passes them on (``operators.carrying``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from pyspark.sql import DataFrame
from sqlglot import exp

from millrace_api.sql.ctes import WrittenOut, cte_of
from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import Side
from millrace_api.sql.top_rows import last_row, row_numbers
from millrace_api.sql.varying import calls_varying
from millrace_jobs.queries.tables.relations import Grouping, Join, Relation, Selection, below
from millrace_jobs.queries.tables.scopes import NotATableQueryError, columns_in

Form = tuple[str, WrittenOut | None, bool, bool, int | None]
"""What makes two subqueries the same: text, CTE, whether joins and groups are final, the last row."""


@dataclass(frozen=True)
class CommonRead:
    """A relation that a query reads more than once.

    ``name`` is that of its CTE, or the alias of its first subquery. ``materialized`` is what the SQL asks for: to
    compute it once (``AS MATERIALIZED``), for each reader (``AS NOT MATERIALIZED``), or None. ``readers`` is how often
    the SQL reads it.
    """

    name: str
    relation: Relation
    materialized: bool | None
    readers: int = 1


def common_read(table: exp.Subquery, relation: Relation, others: Iterable[CommonRead]) -> CommonRead:
    """Return the relation of a subquery that is read again, with a name that none of the others has."""
    cte = cte_of(table.this)
    name = first = table.alias_or_name if cte is None else cte.name
    taken = {each.name for each in others}
    numbers = count(2)
    while name in taken:
        name = f"{first} ({next(numbers)})"
    return CommonRead(name or "subquery", relation, None if cte is None else cte.materialized)


def form_of(table: exp.Subquery, final_joins: bool, final_groups: bool) -> Form | None:
    """Return what the subquery has in common with others that mean the same; None if each has values of its own."""
    query, inner = table.this, table.unnest()
    cte = cte_of(query)
    if cte is None and calls_varying(query):
        return None
    # the SELECT around it can say how many rows it numbers
    last = last_row(inner) if isinstance(inner, exp.Select) and row_numbers(inner) else None
    return to_sql(query), cte, final_joins, final_groups, last


def check_materialized(table: exp.Subquery, form: Form, others: Iterable[Form]) -> None:
    """Check that a CTE that is to be computed once has one form; raises NotATableQueryError."""
    cte = cte_of(table.this)
    if cte is None or not cte.materialized:
        return
    other = next((each for each in others if each[:2] == form[:2] and each != form), None)
    if other is None:
        return
    *_, last = form
    if other[-1] != last:
        reason = f"its readers ask for its first {other[-1]} rows and for its first {last} rows"
        hint = "ask for as many rows in each reader, or leave MATERIALIZED out"
    else:
        reason, hint = "some of its readers need final rows, and others do not", "leave MATERIALIZED out"
    raise NotATableQueryError(f"{cte.name} is AS MATERIALIZED, and {reason}", hint)


@dataclass(frozen=True)
class CommonInput:
    """A relation that both sides of a join read.

    ``above`` has the selections between it and each side, the lowest first. With ``through``, the side ``grouped`` has
    the rows of this grouping, whose input is the relation under the selections ``below``; then ``above`` are those over
    the grouping.
    """

    relation: Relation
    above: Mapping[Side, tuple[Selection, ...]]
    through: Grouping | None = None
    grouped: Side = "left"
    below: tuple[Selection, ...] = ()

    @property
    def mixes_rows(self) -> bool:
        """Whether what one reader computes goes through rows that only the other one has."""
        selections = (*self.below, *(each for over in self.above.values() for each in over))
        return self.through is not None or any(each.where for each in selections)


def common_input(join: Join) -> CommonInput | None:
    """Return the relation that both sides of a join read where it can be computed once; None without one."""
    found = _meeting(join.left, join.right)
    if found is not None:
        relation, left, right = found
        return CommonInput(relation, {"left": left, "right": right})
    sides: dict[Side, Relation] = {"left": join.left, "right": join.right}
    others: tuple[tuple[Side, Side], ...] = (("left", "right"), ("right", "left"))
    for grouped, other in others:
        *above, grouping = _chain(sides[grouped])
        # a window would multiply the rows that are passed on, and final groups need no versions of their input
        if not isinstance(grouping, Grouping) or grouping.window is not None or grouping.final:
            continue
        found = _meeting(grouping.input, sides[other])
        if found is not None:
            relation, under, beside = found
            over = tuple(each for each in reversed(above) if isinstance(each, Selection))
            return CommonInput(relation, {grouped: over, other: beside}, grouping, grouped, under)
    return None


def common_inputs(relation: Relation) -> Iterator[CommonInput]:
    """Yield what the joins in a relation can compute once."""
    for each in below(relation):
        found = common_input(each) if isinstance(each, Join) else None
        if found is not None:
            yield found


def _chain(relation: Relation) -> list[Relation]:
    """Return a relation and what it selects from, up to one that is no selection."""
    chain = [relation]
    while isinstance(relation, Selection):
        relation = relation.input
        chain.append(relation)
    return chain


def _meeting(one: Relation, other: Relation) -> tuple[Relation, tuple[Selection, ...], tuple[Selection, ...]] | None:
    """Return the relation that two relations select from, and the selections of each over it, the lowest first."""
    chains = _chain(one), _chain(other)
    for place, relation in enumerate(chains[0]):
        if relation in chains[1]:
            ends = place, chains[1].index(relation)
            left, right = (
                tuple(each for each in reversed(chain[:end]) if isinstance(each, Selection))
                for chain, end in zip(chains, ends, strict=True)
            )
            return relation, left, right
    return None


class Branch:
    """What one reader makes of rows that others read, too: columns of its own, and a column with the rows it keeps.

    Internal names are unique in a query, so that the columns of several readers fit beside each other.

    Args:
        selections: the reader's filters and projections, the lowest first.
        needed: the columns that it needs of their result.
    """

    def __init__(self, selections: Sequence[Selection], needed: Collection[str]) -> None:
        steps, needed = [], frozenset(needed)
        made = [each.items for each in selections if each.items]
        self._made = needed.intersection(name for _, name in made[-1]) if made else None
        for selection in reversed(selections):
            items = [(sql, name) for sql, name in selection.items if name in needed]
            steps.append((selection.where, items))
            read = frozenset(columns_in([selection.where, *(sql for sql, _ in items)]))
            needed = read if selection.items else needed | read
        self._steps = steps[::-1]
        self.needed = needed
        """The columns that it needs of the rows."""

    def columns(self, columns: Iterable[str]) -> frozenset[str]:
        """Return the columns of the result, over rows with these columns."""
        return frozenset(columns) if self._made is None else self._made

    def over(self, rows: DataFrame, keeps: str) -> DataFrame:
        """Return rows with the columns of the result; the BOOLEAN column ``keeps`` becomes false for rows without one.

        An expression is computed only for rows that the reader has, since it may fail for others.
        """
        for where, items in self._steps:
            if where:
                rows = narrowed(rows, keeps, where)
            if items:
                rows = rows.selectExpr(*rows.columns, *kept_only(keeps, items))
        return rows


def narrowed(rows: DataFrame, keeps: str, where: str) -> DataFrame:
    """Return rows of which a reader keeps only those that pass a filter."""
    others = (name for name in rows.columns if name != keeps)
    return rows.selectExpr(*others, f"CASE WHEN {keeps} THEN coalesce({where}, false) ELSE false END AS {keeps}")


def kept_only(keeps: str, items: Sequence[tuple[str, str]], prefix: str = "") -> Iterator[str]:
    """Yield items, each with its name behind a prefix, which are NULL for rows that a reader does not keep."""
    for sql, name in items:
        yield f"CASE WHEN {keeps} THEN {sql} END AS {prefix}{name}"
