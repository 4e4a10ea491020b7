"""Fields of structs in SQL: ``user.country``, and which column of which source they are part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.errors import Problem, suggest
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.schema_ddl import Column
from millrace_api.sql.source_table import SourceTable


@dataclass(frozen=True)
class FieldPath:
    """A column of a source as SQL names it, and the names after it.

    ``qualifier`` is the alias of the source where that is written, and ``source`` the alias or name it is known by.
    """

    source: str
    table: SourceTable
    column: Column
    fields: tuple[exp.Identifier, ...]
    qualifier: exp.Identifier | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the column and of the fields."""
        return self.column.name, *(field.name for field in self.fields)

    @property
    def value(self) -> Column | None:
        """What the path leads to; None where it goes through an array or a map, and if there is no such field."""
        found: Column | None = self.column
        for field in self.fields:
            found = None if found is None else found.field(field.name)
        return found


def outermost(column: exp.Column) -> tuple[exp.Expr, list[exp.Identifier]]:
    """Return the expression of a column with all fields that are read from it, and its names in order."""
    node: exp.Expr = column
    names = [part for part in column.parts if isinstance(part, exp.Identifier)]
    while isinstance(node.parent, exp.Dot) and node.parent.this is node:
        if not isinstance(node.parent.expression, exp.Identifier):
            break
        node = node.parent
        names.append(node.expression)
    return node, names


def path_of(names: Sequence[exp.Identifier], scope: Scope, tables: Mapping[str, SourceTable]) -> FieldPath | None:
    """Return what names in a SELECT stand for, as Spark resolves them; None for what is no column of a source.

    A qualified column goes before the field of a column with the name of a source.
    """
    sources = {
        alias.lower(): tables.get(source.name.lower()) if isinstance(source, exp.Table) else None
        for alias, (_, source) in scope.selected_sources.items()
    }
    first = names[0].name.lower()
    if len(names) > 1 and (table := sources.get(first)) is not None:
        column = table.column(names[1].name)
        if column is not None:
            return FieldPath(first, table, column, tuple(names[2:]), names[0])
    found = [
        FieldPath(alias, table, column, tuple(names[1:]), None)
        for alias, table in sources.items()
        if table is not None and (column := table.column(first)) is not None
    ]
    return found[0] if len(found) == 1 else None


def field_problems(text: str, scope: Scope, tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield fields that the column before them does not have, as far as the schemas show it."""
    if not isinstance(scope.expression, exp.Select) or scope.expression.args.get("laterals"):
        return
    for column in scope.columns:
        if column.find_ancestor(exp.Select) is not scope.expression:
            continue
        _, names = outermost(column)
        path = path_of(names, scope, tables)
        if path is None:
            continue
        holder, known = path.column, path.column.name
        for field in path.fields:
            if not holder.is_struct:
                if holder.is_scalar:
                    hint = f"write {known}, or declare it STRUCT<{field.name}: ...> in the schema"
                    message = f'"{known}" is {holder.type}, which has no field "{field.name}"'
                    yield problem_at(text, field.meta.get("start"), message, hint)
                break  # of an array, Spark reads the field of each element, and of a map, the value of a key
            found = holder.field(field.name)
            if found is None:
                hint = suggest(field.name, [part.name for part in holder.parts])
                yield problem_at(text, field.meta.get("start"), f'"{known}" has no field "{field.name}"', hint)
                break
            holder, known = found, f"{known}.{found.name}"
