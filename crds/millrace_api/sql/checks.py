"""Checks of a query's SQL without Spark: syntax, tables, columns, functions and windows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_api.model.streamquery import Emit
from millrace_api.sql.clause_checks import clause_problems, comment_problems
from millrace_api.sql.ctes import has_ctes, with_ctes_written_out
from millrace_api.sql.dialect import FUNCTIONS, problem_at, start_of
from millrace_api.sql.event_times import unclosed_groups
from millrace_api.sql.grouping_checks import grouping_problems
from millrace_api.sql.groups import is_any_window
from millrace_api.sql.kind_checks import Kind, KindOf, kind_of, kind_of_type, kind_problems
from millrace_api.sql.name_checks import name_problems
from millrace_api.sql.nested_fields import field_problems, outermost, path_of
from millrace_api.sql.nested_times import star_problems, with_time_columns
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.result_names import expanded_names, output_names
from millrace_api.sql.size import size_problems
from millrace_api.sql.source_table import SourceTable
from millrace_api.sql.stream_checks import stream_problems
from millrace_api.sql.window_checks import session_problems, window_problems

_MOST = 20
"""Unknown names that are reported of a SELECT; each is compared with all known ones, to suggest what to write."""


def check_sql(
    text: str,
    tables: Mapping[str, SourceTable],
    *,
    emit: Emit,
    takes_back: bool = False,
    more_functions: bool = False,
    own_functions: Collection[str] = (),
    own_aggregates: Collection[str] = (),
    as_stream: bool = True,
) -> list[Problem]:
    """Return all problems of the SQL; their ``line`` counts from 1 within the text, None is the whole text.

    Args:
        text: SQL of the query.
        tables: sources by name, in lower case.
        emit: when results are emitted.
        takes_back: whether results can be taken back after they were emitted.
        more_functions: whether there may be functions other than Spark's own.
        own_functions: names of the query's functions.
        own_aggregates: names of the query's aggregates.
        as_stream: whether SQL that Spark refuses as a stream is a problem.
    """
    try:
        parsed = parsed_query(text, frozenset(own_aggregates))
    except MillraceError as error:
        return list(error.problems)
    if refused := [*size_problems(parsed.tree), *comment_problems(text)]:
        return refused
    try:
        query = with_ctes_written_out(parsed.tree, keeps_unread=True)  # a copy: hints and event times are rewritten
    except MillraceError as error:
        return list(error.problems)
    for hint in list(query.find_all(exp.Hint)):
        hint.pop()  # hints name tables by alias, and Spark ignores unknown names
    if refused := [*size_problems(query), *_unknown_tables(text, query, tables)]:
        return refused  # the columns of a missing table are unknown, so further checks would guess
    if refused := list(star_problems(text, query, tables)):
        return refused
    query, tables = with_time_columns(query, tables)
    problems = list(clause_problems(text, query))
    scopes, columns, places = traverse_scope(query), _ColumnLists(tables), _places(query)
    for scope in scopes:
        problems += islice(_ScopeCheck(text, scope, columns, places).unknown_columns(), _MOST)
        problems += islice(field_problems(text, scope, tables), _MOST)
    if not more_functions:
        problems += islice(_unknown_functions(text, query, (*own_functions, *own_aggregates)), _MOST)
    problems += _unknown_ordinals(query)
    problems += _uneven_sides(text, scopes, tables)
    if not problems:
        kinds = _ColumnKinds(columns, tables)
        for scope in scopes:
            known = columns.within(scope)
            problems += islice(name_problems(text, scope, known), _MOST)
            problems += islice(grouping_problems(text, scope, known), _MOST)
            own = (node for node in scope.walk() if places[id(node)].select is scope.expression)
            problems += islice(kind_problems(text, own, kinds.of(scope)), _MOST)
            problems += session_problems(text, scope, tables) if as_stream else ()
        problems += _unlike_sides(text, scopes, kinds, tables)
    problems += window_problems(text, scopes, tables, emit)
    streams = {name: table for name, table in tables.items() if not table.static}
    if not problems and not any(table.name.lower() in streams for table in query.find_all(exp.Table)):
        what = "sources" if len(streams) == len(tables) else "sources that stream"
        problems.append(Problem(f"the SQL reads none of the {what}", f"write FROM {' or '.join(streams)}"))
    if as_stream:
        watermarks = {name: table.watermark for name, table in streams.items()}
        keyed = [name for name, table in streams.items() if table.keys]
        problems += stream_problems(text, query, scopes, watermarks, tables=keyed, emit=emit, takes_back=takes_back)
        # what has joins or tables is left to the planner, as other operators than Spark's can know more event times
        if not problems and emit is Emit.ON_WINDOW_CLOSE and not keyed and query.find(exp.Join) is None:
            problems += unclosed_groups(text, scopes, tables)
    return list(dict.fromkeys(problems))


def _unknown_tables(text: str, query: exp.Query, tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    defined = set() if has_ctes(query) else {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a table-valued function
        name = ".".join(part.name for part in table.parts)
        # with several parts, such as text.`/etc/passwd`, it is no CTE to Spark, even if one has a name with a dot
        if len(table.parts) > 1 or (name.lower() not in tables and name.lower() not in defined):
            hint = suggest(name, tables, f"write one of the sources: {', '.join(tables)}")
            yield _at(text, table.this, f'there is no source "{name}"', hint)


def _unknown_functions(text: str, query: exp.Query, own: Collection[str]) -> Iterator[Problem]:
    """Yield calls whose name is no function of Spark or the query; sqlglot knows more names than Spark."""
    for call in query.find_all(exp.Func):
        if "start" not in call.meta or isinstance(call.parent, exp.Dot):
            continue  # special syntax, or a function of a catalog
        written = text[call.meta["start"] : call.meta["end"] + 1].strip("`")
        called = text[call.meta["end"] + 1 :].lstrip().startswith("(")
        if called and written.lower() not in FUNCTIONS and written.lower() not in own:
            own_ones = "spec.query.functions or spec.query.aggregates"
            otherwise = f"write one of Spark's functions, or one of your own in {own_ones}"
            hint = suggest(written, [*own, *FUNCTIONS], otherwise)
            yield problem_at(text, call.meta["start"], f'there is no function "{written}"', hint)


def _unknown_ordinals(query: exp.Query) -> Iterator[Problem]:
    """Yield numbers in GROUP BY that are not the position of an item of the SELECT list."""
    for select in query.find_all(exp.Select):
        group, items = select.args.get("group"), len(select.expressions)
        if group is None or select.is_star:
            continue  # a star stands for an unknown number of items
        for node in group.expressions:
            if isinstance(node, exp.Literal) and node.is_int and not 1 <= int(node.name) <= items:
                hint = f"write a number from 1 to {items}, or the expression itself"
                yield Problem(f"GROUP BY {node.name} is not a position in the SELECT list", hint)


def _uneven_sides(text: str, scopes: Sequence[Scope], tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield UNIONs and the like whose sides have different numbers of columns, as far as these are known."""
    columns = {name: None if table.columns is None else [each.name for each in table.columns]
               for name, table in tables.items()}  # fmt: skip
    known = {id(scope.expression): scope for scope in scopes}
    for operation in (scope.expression for scope in scopes if isinstance(scope.expression, exp.SetOperation)):
        sides = [known.get(id(side.unnest())) for side in (operation.this, operation.expression)]
        one, other = (None if side is None else expanded_names(side, columns) for side in sides)
        if operation.args.get("by_name") or one is None or other is None or len(one) == len(other):
            continue
        message = f"the sides of {operation.key.upper()} have {len(one)} and {len(other)} columns"
        yield problem_at(text, start_of(operation.expression), message, "select as many on both sides")


def _unlike_sides(
    text: str, scopes: Sequence[Scope], kinds: _ColumnKinds, tables: Mapping[str, SourceTable]
) -> Iterator[Problem]:
    """Yield UNIONs and the like with a column whose types on both sides do not fit, as far as these are known."""
    known = {id(scope.expression): scope for scope in scopes}
    columns = {name: None if table.columns is None else [each.name for each in table.columns]
               for name, table in tables.items()}  # fmt: skip

    def sides(node: exp.Expr) -> list[list[Kind | None]]:
        """Return the kinds of the columns of each SELECT below a set operation."""
        node = node.unnest()
        if isinstance(node, exp.SetOperation):
            return [*sides(node.this), *sides(node.expression)]
        scope = known.get(id(node))
        if scope is None or not isinstance(node, exp.Select):
            return [[]]
        if any(item.is_star for item in node.selects):
            names = expanded_names(scope, columns) if len(node.selects) == 1 else None
            return [[kinds.of(scope)(exp.column(name)) for name in names or ()]]
        return [[kind_of(item.unalias(), kinds.of(scope)) for item in node.selects]]

    for operation in (scope.expression for scope in scopes if isinstance(scope.expression, exp.SetOperation)):
        one, other = (
            [kinds_of[0] if len(set(kinds_of)) == 1 else None for kinds_of in zip(*sides(side), strict=False)]
            for side in (operation.this, operation.expression)
        )
        for place, pair in enumerate(zip(one, other, strict=False), 1):
            unlike = {"text", *pair, None} - {"text", None}
            if len(unlike) > 1 and unlike != {"time", "date"}:
                message = f"column {place} of the sides of {operation.key.upper()} is a {pair[0]} and a {pair[1]}"
                yield problem_at(text, start_of(operation.expression), message, "write a CAST, or order them alike")
                break


class _ColumnKinds:
    """Kinds of columns. Each is looked for once, since an expression may have a column twice on each of many levels."""

    def __init__(self, columns: _ColumnLists, tables: Mapping[str, SourceTable]) -> None:
        self._columns, self._tables = columns, tables
        self._found: dict[tuple[int, tuple[str, ...]], Kind | None] = {}

    def of(self, scope: Scope) -> KindOf:
        """Return the function that gives the kind of a column of this SELECT, also through SELECTs that it reads."""

        def kind(column: exp.Column) -> Kind | None:
            at = id(scope), tuple(part.name.lower() for part in column.parts)
            if at not in self._found:
                path = path_of(outermost(column)[1], scope, self._tables) if len(at[1]) > 1 else None
                field = path.value if path is not None and path.fields else None
                self._found[at] = self._kind(scope, at[1]) if field is None else kind_of_type(field.type)
            return self._found[at]

        return kind

    def _kind(self, scope: Scope, parts: tuple[str, ...]) -> Kind | None:
        sources = {name.lower(): source for name, (_, source) in scope.selected_sources.items()}
        known = self._columns.within(scope)
        holders = [parts[0]] if len(parts) > 1 else [name for name in known if parts[0] in (known[name] or ())]
        if len(holders) != 1 or len(parts) > 2 or holders[0] not in sources or None in known.values():
            return None
        source = sources[holders[0]]
        if isinstance(source, exp.Table):
            table = self._tables.get(source.name.lower())
            found = None if table is None else table.column(parts[-1])
            return None if found is None else kind_of_type(found.type)
        if source.set_operation_scopes:
            return self._kind_in_all(source, parts[-1])
        items = source.expression.selects if isinstance(source.expression, exp.Select) else []
        inner = self.of(source)
        if len(items) == 1 and items[0].is_star and len(source.selected_sources) == 1:
            return inner(exp.column(parts[-1]))
        named = [item for item in items if item.alias_or_name.lower() == parts[-1]]
        return kind_of(named[0].unalias(), inner) if len(named) == 1 and not source.outer_columns else None

    def _kind_in_all(self, operation: Scope, name: str) -> Kind | None:
        """Return the kind of a column that a set operation has from all its sides."""
        names, kinds = self._columns.of(operation), set()
        for side in operation.set_operation_scopes:
            own, select = self._columns.of(side), side.expression
            if names is None or own is None or len(names) != len(own) or name not in names:
                return None
            same = [*own][[*names].index(name)]
            if side.set_operation_scopes:
                kinds.add(self._kind_in_all(side, same))
                continue
            items = select.selects if isinstance(select, exp.Select) else []
            if len(items) == 1 and items[0].is_star:
                kinds.add(self.of(side)(exp.column(same)))
                continue
            named = [item for item in items if item.alias_or_name.lower() == same]
            kinds.add(kind_of(named[0].unalias(), self.of(side)) if len(named) == 1 else None)
        return kinds.pop() if len(kinds) == 1 else None


class _Place(NamedTuple):
    """What a node is in: the SELECT, whether it is in a WHERE or a join, and the innermost item with an alias."""

    select: exp.Expr | None = None
    filters: bool = False
    item: exp.Expr | None = None


def _places(query: exp.Query) -> dict[int, _Place]:
    """Return the place of each node, by the node's identity."""
    places: dict[int, _Place] = {}
    for node in query.walk():  # each node comes after the one that holds it
        holder = node.parent
        place = places.get(id(holder), _Place())
        if isinstance(holder, exp.Select):
            place = place._replace(select=holder)
        elif isinstance(holder, exp.Where | exp.Join):
            place = place._replace(filters=True)
        elif isinstance(holder, exp.Alias):
            place = place._replace(item=holder)
        places[id(node)] = place
    return places


class _ColumnLists:
    """Columns of tables, CTEs and derived tables. Each is asked for once, since stars over stars can be many."""

    def __init__(self, tables: Mapping[str, SourceTable]) -> None:
        self._tables = tables
        self._found: dict[int, dict[str, str] | None] = {}
        self._within: dict[int, dict[str, dict[str, str] | None]] = {}

    def within(self, scope: Scope) -> dict[str, dict[str, str] | None]:
        """Return the columns of what a SELECT reads, by its name in lower case; unknown if an alias renames them."""
        if id(scope) not in self._within:
            self._within[id(scope)] = {
                name.lower(): None if isinstance(node, exp.Table) and node.alias_column_names else self.of(source)
                for name, (node, source) in scope.selected_sources.items()
            }
        return self._within[id(scope)]

    def of(self, source: exp.Expr | Scope) -> dict[str, str] | None:
        """Return the columns of a source, lower case to declared; None if they are unknown."""
        if isinstance(source, exp.Table):
            table = self._tables.get(source.name.lower())
            if table is None or table.columns is None or source.args.get("pivots"):
                return None
            return {column.name.lower(): column.name for column in table.columns}
        if not isinstance(source, Scope):
            return None
        if id(source) not in self._found:
            self._found[id(source)] = self._of_scope(source)
        return self._found[id(source)]

    def _of_scope(self, source: Scope) -> dict[str, str] | None:
        if source.outer_columns:
            return {name.lower(): name for name in source.outer_columns}
        select = source.expression
        if source.set_operation_scopes:
            return self.of(source.set_operation_scopes[0])
        if not isinstance(select, exp.Select) or select.args.get("laterals"):
            return None
        names = {name.lower(): name for name in output_names(select)}
        if select.is_star:
            for inner in source.sources.values():
                columns = self.of(inner)
                if columns is None:
                    return None
                names |= columns
        return names


class _ScopeCheck:
    """The names that one SELECT may use: its own and, in a subquery, the names of the enclosing SELECT."""

    def __init__(self, text: str, scope: Scope, columns: _ColumnLists, places: Mapping[int, _Place]) -> None:
        self._text = text
        self._scope = scope
        self._places = places
        self._sources = {name.lower(): columns.of(source) for name, source in scope.sources.items()}
        self._sources |= columns.within(scope)
        inner = scope.parent is not None and (scope.is_subquery or scope.is_udtf)
        self._outer = _ScopeCheck(text, scope.parent, columns, places) if inner and scope.parent else None

    def unknown_columns(self) -> Iterator[Problem]:
        for column in self._scope.columns:
            place = self._places.get(id(column), _Place())
            if place.select is not self._scope.expression:
                continue  # a subquery has its own scope
            first, *rest = column.parts
            name = first.name.lower()
            is_column = self._knows(name, place)
            if rest and name in self._source_names:
                known = self._columns_of(name)
                is_column = is_column or (known is not None and name in known)  # LATERAL VIEW f(...) AS name
                if known is not None and rest[0].name.lower() not in known and not is_column:
                    yield self._problem(rest[0], known, f'"{first.name}" has no column "{rest[0].name}"')
            elif is_column is False:
                what = "table or column" if rest else "column"
                visible = self._visible(place) | {each: each for each in self._source_names if rest}
                yield self._problem(first, visible, f'there is no {what} "{first.name}"')

    def _problem(self, name: exp.Expr, known: Mapping[str, str], message: str) -> Problem:
        otherwise = "" if self._source_names else "add FROM and the name of a source"
        return _at(self._text, name, message, suggest(name.name, dict.fromkeys(known.values()), otherwise))

    @cached_property
    def _source_names(self) -> set[str]:
        return set(self._sources) | (self._outer._source_names if self._outer else set())

    def _columns_of(self, source: str) -> dict[str, str] | None:
        if source in self._sources or self._outer is None:
            return self._sources[source]
        return self._outer._columns_of(source)

    def _knows(self, name: str, place: _Place) -> bool | None:
        """Return whether an unqualified name, in lower case, is valid in a place; None if that is unknown."""
        if self._named is None:
            return None
        outer = False if self._outer is None else self._outer._knows(name, place)
        if outer is None:
            return None
        return outer or name in self._named or self._is_alias(name, place)

    def _is_alias(self, name: str, place: _Place) -> bool:
        """Return whether another item than that of the place has this alias, which WHERE and joins do not know."""
        items = () if place.filters else self._aliases.get(name, ())
        return any(item is not place.item for item, _ in items[:2])  # of two items, one is another

    def _visible(self, place: _Place) -> dict[str, str]:
        """Return the unqualified names that are valid in a place, lower case to declared, as far as they are known."""
        outer = {} if self._outer is None else self._outer._visible(place)
        aliases = {name: items[0][1] for name, items in self._aliases.items() if self._is_alias(name, place)}
        return outer | (self._named or {}) | aliases

    @cached_property
    def _named(self) -> dict[str, str] | None:
        """Columns of the sources and of windows, lower case to declared; None if not all are known."""
        select = self._scope.expression
        if not isinstance(select, exp.Select) or select.args.get("laterals"):
            return None
        named: dict[str, str] = {}
        for known in self._sources.values():
            if known is None:
                return None
            named |= known
        return named | self._windows

    @cached_property
    def _windows(self) -> dict[str, str]:
        """Names of the window columns of this SELECT."""
        return {call.name.lower(): call.name.lower() for call in _window_calls(self._scope.expression)}

    @cached_property
    def _aliases(self) -> dict[str, list[tuple[exp.Expr, str]]]:
        """Items of the SELECT list by their alias in lower case, with the alias as declared."""
        found: dict[str, list[tuple[exp.Expr, str]]] = {}
        for item in self._scope.expression.expressions:
            if isinstance(item, exp.Alias):
                found.setdefault(item.alias.lower(), []).append((item, item.alias))
        return found


def _window_calls(select: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in select.find_all(exp.Anonymous) if is_any_window(node))


def _at(text: str, node: exp.Expr, message: str, hint: str) -> Problem:
    """Return a problem at the position of an identifier in the text."""
    return problem_at(text, node.meta.get("start"), message, hint)
