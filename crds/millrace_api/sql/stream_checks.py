"""Checks for SQL that Structured Streaming cannot run, each with what to write instead.

Only cases that the text alone proves are checked here. Cases that need types or the lineage of a watermark are left to
Spark's own check of its plan, which runs in ``millrace explain`` and at every start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope
from sqlglot.tokenizer_core import TokenType

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Emit
from millrace_api.sql.dialect import Keywords, problem_at, start_of
from millrace_api.sql.groups import aggregates, is_aggregate, is_any_window
from millrace_api.sql.join_bounds import unbounded, unending
from millrace_api.sql.sorted_limits import is_sorted_limit, sorted_limit_refusal
from millrace_api.sql.top_rows import is_row_number, row_number_problem, row_numbers

_TOP_N = (
    "for the top N of a key or window write QUALIFY row_number() OVER (PARTITION BY key ORDER BY y DESC) <= N, or "
    "max_by(x, y, N) with GROUP BY, or declare builtin: TopK in query.aggregates"
)
_FIRST = f"for the first rows of all write ORDER BY y DESC LIMIT N with a sink that replaces rows; {_TOP_N}"
_RANGE = "AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE"
_ON = f"ON a.key = b.key {_RANGE}"
_ANTI = f"write LEFT JOIN b {_ON} WHERE b.key IS NULL, with watermarks on both sources"

_ASKING = ("SEMI", "ANTI")
"""Joins that have rows of their left side alone, by whether they have a partner."""

_WINDOW_NAMES = ("window", "session_window")

_SORTS = {
    "order": ("ORDER BY", TokenType.ORDER_BY),
    "sort": ("SORT BY", TokenType.SORT_BY),
    "cluster": ("CLUSTER BY", TokenType.CLUSTER_BY),
}


def stream_problems(
    text: str,
    query: exp.Query,
    scopes: Iterable[Scope],
    watermarks: Mapping[str, str | None],
    *,
    tables: Collection[str] = (),
    emit: Emit,
    takes_back: bool = False,
) -> list[Problem]:
    """Return everything in the query that cannot run as a stream.

    Args:
        text: SQL text; the problems have their positions in it.
        query, scopes: parsed query, and the scopes of all its SELECTs.
        watermarks: watermark column of each source, or None; source names are in lower case.
        tables: the sources that are read as tables.
        emit: when results are emitted.
        takes_back: whether results can be taken back after they were emitted.
    """
    check = _StreamCheck(text, query, list(scopes), watermarks, tables, emit, takes_back)
    return check.problems()


class _StreamCheck:
    def __init__(
        self,
        text: str,
        query: exp.Query,
        scopes: list[Scope],
        watermarks: Mapping[str, str | None],
        tables: Collection[str],
        emit: Emit,
        takes_back: bool,
    ) -> None:
        self._text = text
        self._query = query
        self._scopes = scopes
        self._watermarks = watermarks
        self._tables = tables
        self._keywords = Keywords(text)
        self._emit = emit
        self._updates = emit is not Emit.ON_WINDOW_CLOSE and aggregates(query)
        self._only_adds = self._updates and not takes_back
        self._streams: dict[int, str] = {}
        """Sources of the tables that are streams, by the identity of the table; a CTE has the source of its SELECT."""
        self._reading: dict[int, bool] = {}
        """Whether an expression reads a stream, by its identity, once all streams are known."""
        self._aggregated: set[int] = set()
        """Identities of the SELECTs and set operations over streams whose rows result from an aggregation."""

    def problems(self) -> list[Problem]:
        for scope in self._scopes:  # scopes come after the scopes that they read
            self._learn_streams(scope)
        found = [problem for node in self._query.walk() for problem in self._check_node(node)]
        for scope in self._scopes:
            found += self._check_scope(scope)
        return found

    def _learn_streams(self, scope: Scope) -> None:
        ctes = {name.lower(): source for name, source in scope.cte_sources.items()}
        for table in scope.tables:
            cte = ctes.get(table.name.lower())
            if cte is not None and cte is not scope:
                read = (self._streams.get(id(each)) for each in cte.expression.find_all(exp.Table))
                name = next((name for name in read if name), None)
            else:
                name = table.name.lower() if table.name.lower() in self._watermarks else None
            if name is not None:
                self._streams[id(table)] = name

    def _reads(self, node: exp.Expr | None) -> bool:
        if node is None:
            return False
        if id(node) not in self._reading:  # each call of a SELECT asks for all of it
            self._reading[id(node)] = any(id(table) in self._streams for table in node.find_all(exp.Table))
        return self._reading[id(node)]

    def _at(self, start: int | None, message: str, hint: str) -> Problem:
        return problem_at(self._text, start, message, hint)

    def _check_node(self, node: exp.Expr) -> Iterator[Problem]:
        if isinstance(node, exp.Query) and self._reads(node):
            yield from self._check_modifiers(node)
        if isinstance(node, exp.Window | exp.Distinct | exp.Func | exp.TableSample | exp.Pivot):
            select = node.find_ancestor(exp.Select)
            if self._reads(select):
                yield from self._check_call(node)
        if isinstance(node, exp.Except) and self._reads(node.expression) and not self._is_bounded(node):
            start = self._keywords.before(node.expression, TokenType.EXCEPT)
            yield self._at(
                start, "EXCEPT needs all records of its right side, and a stream has no end", self._instead(_ANTI)
            )
        if isinstance(node, exp.Intersect) and self._reads(node) and not self._is_bounded(node):
            start = self._keywords.before(node.expression, TokenType.INTERSECT)
            semi = f"write LEFT SEMI JOIN b {_ON}, with watermarks on both sources"
            yield self._at(start, "streams without event time have no INTERSECT", self._instead(semi))
        if isinstance(node, exp.Union) and self._reads(node.this) != self._reads(node.expression):
            start = self._keywords.before(node.expression, TokenType.UNION)
            yield self._at(start, "one side of UNION is a stream, and the other is not", "read a source on both sides")

    def _is_bounded(self, node: exp.Except | exp.Intersect) -> bool:
        """Whether operators on tables can count the rows of both sides; where tables are read, the planner says so."""
        sides = (node.this, node.expression)
        return all(map(self._reads, sides)) and (bool(self._tables) or all(map(self._may_have_time, sides)))

    def _may_have_time(self, side: exp.Query) -> bool:
        """Whether the rows of a SELECT or set operation may have an event time, after which none comes."""
        query: exp.Expr = side.unnest()
        while isinstance(query, exp.SetOperation):
            query = query.this.unnest()
        if not isinstance(query, exp.Select):
            return True
        times = {column.lower() for column in self._watermarks.values() if column}
        sources = [
            part.this for part in (query.args.get("from_"), *(query.args.get("joins") or ())) if part is not None
        ]
        read_directly = all(isinstance(source, exp.Table) for source in sources)

        def can_be_time(item: exp.Expr) -> bool:
            if is_any_window(item) or not isinstance(item, exp.Column):
                return is_any_window(item)
            if item.table.lower() in _WINDOW_NAMES:
                return False  # window.start is no event time, the window is
            return not read_directly or item.name.lower() in times or item.name.lower() in _WINDOW_NAMES

        return bool(query.is_star) or any(can_be_time(item.unalias()) for item in query.selects)

    def _instead(self, hint: str) -> str:
        """Return what to write in place of a set operation whose rows have no event time."""
        times = sorted({column for column in self._watermarks.values() if column})
        return f"select {' or '.join(times)} on both sides, or {hint}" if times else hint

    def _check_modifiers(self, node: exp.Query) -> Iterator[Problem]:
        """Check the clauses that sort or count rows."""
        if is_sorted_limit(node) and not (node.args.get("sort") or node.args.get("cluster")):
            if (refusal := sorted_limit_refusal(node)) is not None:
                yield self._at(self._keywords.before(node.args["order"], TokenType.ORDER_BY), *refusal)
            return
        for part, (name, token) in _SORTS.items():
            clause = node.args.get(part)
            if clause is not None:
                start = self._keywords.before(clause, token)
                yield self._at(start, f"{name} needs all records, and a stream has no end", f"leave it out; {_FIRST}")
        offset, limit = node.args.get("offset"), node.args.get("limit")
        if offset is not None:
            start = self._keywords.before(offset, TokenType.OFFSET)
            yield self._at(start, "OFFSET has no order to count rows in", f"leave it out; {_FIRST}")
        if limit is not None and self._updates:
            start = self._keywords.before(limit, TokenType.LIMIT)
            message = f"LIMIT is not possible under emit {self._emit}, because results change"
            yield self._at(start, message, f"leave it out; {_FIRST}")

    def _check_call(self, node: exp.Expr) -> Iterator[Problem]:
        """Check for OVER windows, DISTINCT in aggregates, TABLESAMPLE, PIVOT, and functions that no stream has."""
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if is_row_number(node):
            problem = row_number_problem(self._text, node)
            yield from () if problem is None else (problem,)
        elif isinstance(node, exp.Window):
            message = "OVER needs all records of a partition, and a stream has no end"
            yield self._at(start_of(node), message, f"write GROUP BY for totals; {_TOP_N}")
        elif isinstance(node, exp.Distinct) and not isinstance(node.parent, exp.Select):
            function = node.find_ancestor(exp.Func)
            counts = isinstance(function, exp.Count | exp.Sum | exp.Avg)
            if counts and all(self._watermarks[source] for source in set(self._streams.values())):
                return
            hint = (
                "give each source a watermark, or write approx_count_distinct, or a Python aggregator"
                if counts
                else "leave DISTINCT out"
            )
            at = None if function is None else function.meta.get("start", start_of(node))
            yield self._at(at, "a stream does not keep every value, which DISTINCT in an aggregate needs", hint)
        elif isinstance(node, exp.TableSample) and node.args.get("size") is None:
            start = self._keywords.before(node, TokenType.TABLE_SAMPLE)
            yield self._at(start, "streams have no TABLESAMPLE", "write WHERE rand() < 0.1")
        elif isinstance(node, exp.TableSample) and self._updates:
            start = self._keywords.before(node, TokenType.TABLE_SAMPLE)
            message = f"TABLESAMPLE of ROWS is not possible under emit {self._emit}, because results change"
            yield self._at(start, message, "write WHERE rand() < 0.1")
        elif isinstance(node, exp.Pivot) and not node.unpivot:
            hint = "write a column for each value, such as sum(n) FILTER (WHERE k = 'a') AS a, and GROUP BY the others"
            yield self._at(self._keywords.before(node, TokenType.PIVOT), "streams have no PIVOT", hint)
        elif name == "monotonically_increasing_id":
            yield self._at(node.meta.get("start"), f"streams have no {name}", "write uuid()")

    def _check_scope(self, scope: Scope) -> Iterator[Problem]:
        node = scope.expression
        if not self._reads(node):
            return
        # EXISTS and IN are joins, of which ``tables.translation`` in the job says what is wrong
        if scope.is_subquery and not _asks_for_rows(node):
            message = "a stream cannot be read by a subquery outside of FROM"
            yield self._at(self._keywords.before(node, TokenType.SELECT), message, "write JOIN b ON a.key = b.key")
        if scope.is_subquery and not self._tables and isinstance(node, exp.Select) and self._lacks_range(node):
            needs = (
                "a range of event time" if any(self._watermarks.values()) else "watermarks and a range of event time"
            )
            message = f"EXISTS or IN of two streams needs {needs}, or their records would be kept forever"
            yield self._at(self._keywords.before(node, TokenType.SELECT), message, f"add {_RANGE} to its WHERE")
        yield from self._check_aggregation(scope)
        if isinstance(node, exp.Select):
            yield from self._check_joins(scope, node)

    def _check_aggregation(self, scope: Scope) -> Iterator[Problem]:
        """Check for aggregates of aggregates, which need closed windows."""
        node = scope.expression
        below = [source for _, source in scope.selected_sources.values() if isinstance(source, Scope)]
        below += scope.set_operation_scopes
        over_aggregate = any(id(each.expression) in self._aggregated for each in below)
        grouped, distinct = _aggregations(scope)
        if grouped or distinct or over_aggregate:
            self._aggregated.add(id(node))
        if distinct and isinstance(node, exp.Select) and self._emit is Emit.ON_WINDOW_CLOSE:
            yield from self._check_distinct(node)
        if self._only_adds and (grouped + distinct > 1 or (over_aggregate and (grouped or distinct))):
            message = f"an aggregate of an aggregate is not possible under emit {self._emit}: the inner one changes"
            hint = (
                "write the results to sink.table, or write emit: OnWindowClose and group both by a window, as in "
                "examples/15-nexmark-q5-hot-items.yaml"
            )
            yield self._at(self._first_keyword(node), message, hint)
        elif not self._updates and grouped and over_aggregate and node.args.get("group") is None:
            message = "an aggregate over all windows has no window of its own that closes"
            yield self._at(self._first_keyword(node), message, "add GROUP BY window to it")

    def _check_distinct(self, select: exp.Select) -> Iterator[Problem]:
        """Check that rows without duplicates have an event time, without which they are never final."""
        if not self._may_have_time(select):
            times = {column.lower() for column in self._watermarks.values() if column}
            message = f"DISTINCT has no event time, so its rows are never final under emit {self._emit}"
            hint = f"add {' or '.join(sorted(times))} or a window to the SELECT list, or write emit: OnUpdate"
            yield self._at(self._first_keyword(select), message, hint)

    def _first_keyword(self, node: exp.Expr) -> int | None:
        """Return the start of a SELECT, or of the keyword between the two sides of a set operation."""
        if isinstance(node, exp.SetOperation):
            return self._keywords.before(node.expression, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
        return self._keywords.before(exp.Tuple(expressions=node.copy().expressions), TokenType.SELECT)

    def _check_joins(self, scope: Scope, select: exp.Select) -> Iterator[Problem]:
        clause = select.args.get("from_")
        left = self._reads(clause)
        for join in select.args.get("joins") or ():
            right = self._reads(join.this) and not isinstance(join.this, exp.Lateral)
            if self._reads_tables(select):
                continue  # ``tables.translation`` in the job says what is wrong with such a join
            name = " ".join(part for part in (join.side, join.kind, "JOIN") if part)
            start = self._keywords.before(join.this, TokenType.JOIN)
            if left and right:
                yield from self._check_join(start, name, scope, select, join)
            elif (left and join.side in ("RIGHT", "FULL")) or (right and join.side in ("LEFT", "FULL")):
                message = f"a {name} needs all records to know which rows have no match, and a stream has no end"
                yield self._at(start, message, "write JOIN, or keep the rows of the stream instead")
            left = left or right

    def _reads_tables(self, select: exp.Select) -> bool:
        return any(table.name.lower() in self._tables for table in select.find_all(exp.Table))

    def _check_join(
        self, start: int | None, name: str, scope: Scope, select: exp.Select, join: exp.Join
    ) -> Iterator[Problem]:
        sources = [source for _, source in scope.selected_sources.values()]
        if self._only_adds and any(isinstance(s, Scope) and id(s.expression) in self._aggregated for s in sources):
            message = f"a {name} with an aggregate is not possible under emit {self._emit}: the aggregate changes"
            hint = (
                "write the results to sink.table, or write emit: OnWindowClose and group by a window, as in "
                "examples/17-nexmark-q8-new-sellers.yaml"
            )
            yield self._at(start, message, hint)
        elif join.kind == "CROSS" and self._keywords.before(join.this, TokenType.JOIN, TokenType.COMMA) == start:
            message = "a CROSS JOIN of two streams has no key for Spark, even if a condition names one"
            yield self._at(start, message, "write JOIN ... ON a.key = b.key")
        elif not _has_equality(select, join):
            yield self._at(start, f"a {name} of two streams needs a key", "write ON a.key = b.key")
        elif self._only_adds and join.side and join.kind not in _ASKING:
            message = f"a {name} of two streams is not possible under emit {self._emit} with GROUP BY or DISTINCT"
            hint = "write the results to sink.table, or write emit: OnWindowClose and group by a window"
            yield self._at(start, message, hint)
        elif join.side or join.kind in _ASKING:
            yield from self._check_outer_join(start, name, scope, select, join)
        else:
            reason = unbounded(scope, select, join, self._watermarks)
            if reason is not None:
                message = f"a join of two streams would keep its records forever: it has {reason}"
                hint = f"add {_RANGE} to the condition, or read one of them as a table: table: {{keys: [...]}}"
                yield self._at(start, message, hint)

    def _check_outer_join(
        self, start: int | None, name: str, scope: Scope, select: exp.Select, join: exp.Join
    ) -> Iterator[Problem]:
        """Check that an outer join has watermarks and a time range, which bound the wait for a match."""
        read = sorted(set(self._streams.values()))
        sources = [source for _, source in scope.selected_sources.values()]
        if not any(self._watermarks[source] for source in read):
            have = "has" if len(read) == 1 else "have"
            message = f"a {name} of two streams needs watermarks, and {' and '.join(read)} {have} none"
            hint = f"add watermark: {{column: ..., delay: 30s}} to the sources, and {_RANGE} to the condition"
            yield self._at(start, message, hint)
        elif all(isinstance(source, exp.Table) for source in sources) and self._ignores_event_time(join):
            message = f"a {name} of two streams needs a range of event time, or a record would wait forever"
            yield self._at(start, message, f"add {_RANGE} to the condition")
        elif (reason := unending(scope, select, join, self._watermarks)) is not None:
            message = f"a record of a {name} would wait forever, since the condition has {reason}"
            yield self._at(start, message, f"add {_RANGE} to the condition")

    def _lacks_range(self, subquery: exp.Select) -> bool:
        """Return whether a subquery of EXISTS or IN is known to compare no event time of the streams that it reads."""
        read = [part.this for part in (subquery.args.get("from_"), *(subquery.args.get("joins") or ())) if part]
        if not _asks_for_rows(subquery) or any(
            not isinstance(each, exp.Table) or each.alias_column_names or id(each) not in self._streams for each in read
        ):
            return False
        if (
            subquery.args.get("group")
            or subquery.find(exp.AggFunc)
            or row_numbers(subquery)
            or is_sorted_limit(subquery)
        ):
            return False  # a table, which has versions
        times = {column.lower() for column in self._watermarks.values() if column}
        return times.isdisjoint(column.name.lower() for column in subquery.find_all(exp.Column))

    def _ignores_event_time(self, join: exp.Join) -> bool:
        """Return whether the condition names no column that is the event time of a source."""
        if join.method or (join.args.get("on") is None and not join.args.get("using")):
            return False
        names = {name.name.lower() for name in join.args.get("using") or ()}
        if join.args.get("on") is not None:
            names |= {column.name.lower() for column in join.args["on"].find_all(exp.Column)}
        return not names & {column.lower() for column in self._watermarks.values() if column}


def _aggregations(scope: Scope) -> tuple[bool, bool]:
    """Return whether a SELECT or set operation groups, and whether it removes duplicates."""
    node = scope.expression
    if isinstance(node, exp.SetOperation):
        return False, bool(node.args.get("distinct"))
    if not isinstance(node, exp.Select):
        return False, False
    groups = node.args.get("group") is not None or any(is_aggregate(call) for call in scope.find_all(exp.Func))
    return groups, bool(node.args.get("distinct"))


def _has_equality(select: exp.Select, join: exp.Join) -> bool:
    """Return whether any condition could give the join a key."""
    if join.args.get("using") or join.method:
        return True
    conditions = [select.args.get("where"), *(each.args.get("on") for each in select.args.get("joins") or ())]
    return any(each is not None and each.find(exp.EQ, exp.NullSafeEQ, exp.NEQ) for each in conditions)


def _asks_for_rows(subquery: exp.Expr) -> bool:
    """Return whether the subquery belongs to IN or EXISTS."""
    holder = subquery.parent.parent if isinstance(subquery.parent, exp.Subquery) else subquery.parent
    return isinstance(holder, exp.In | exp.Exists)
