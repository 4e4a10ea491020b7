"""Which columns of a result are no single value with a text: structs, arrays, maps, variants and bytes.

What only Spark's analyzer knows passes here; a run finds it before its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.sql.groups import is_any_window
from millrace_api.sql.nested_fields import path_of
from millrace_api.sql.source_table import SourceTable

_WINDOW = "struct<start:timestamp,end:timestamp>"

_FUNCTIONS = {
    _WINDOW: "window session_window",
    "struct": "named_struct struct from_csv",
    "array": """array array_agg array_append array_compact array_distinct array_except array_insert array_intersect
    array_prepend array_remove array_repeat array_sort array_union arrays_zip collect_list collect_set collect_union
    filter flatten histogram_numeric json_object_keys map_entries map_keys map_values regexp_extract_all sentences
    sequence shuffle slice sort_array split transform zip_with""",
    "map": """map map_concat map_filter map_from_arrays map_from_entries map_zip_with str_to_map transform_keys
    transform_values""",
    "variant": "parse_json to_variant_object try_parse_json",
    "binary": "aes_encrypt encode to_binary try_to_binary unbase64 unhex",
}
_RESULTS = {name: kind for kind, names in _FUNCTIONS.items() for name in names.split()}
_FIRST = {"any_value", "first", "first_value", "last", "last_value", "max", "max_by", "min", "min_by", "mode",
          "coalesce", "ifnull", "nullif", "nvl"}  # fmt: skip
"""Functions whose result has the type of an argument."""

_PARSED: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Array, "array"), (exp.ArrayAgg, "array"), (exp.ArrayUniqueAgg, "array"),
)  # fmt: skip


def nested_columns(result: Scope, tables: Mapping[str, SourceTable]) -> Iterator[tuple[str, str]]:
    """Yield the names of the result's columns that are no single value with a text, each with (a part of) its type.

    Args:
        result: the scope of the result.
        tables: sources by name, in lower case.
    """
    return iter(_Nested(tables).of(result).items())


class _Nested:
    """The columns of SELECTs that are no single values; each SELECT is looked at once, however many lead to it."""

    def __init__(self, tables: Mapping[str, SourceTable]) -> None:
        self.tables = tables
        self._found: dict[int, dict[str, str]] = {}

    def of(self, scope: Scope) -> dict[str, str]:
        """Return (a part of) the type of each such column of a SELECT, or of the first side of a UNION, by name."""
        while scope.set_operation_scopes:
            scope = scope.set_operation_scopes[0]
        if not isinstance(scope.expression, exp.Select):
            return {}
        if id(scope) not in self._found:
            self._found[id(scope)] = dict(self._columns(scope))
        return self._found[id(scope)]

    def _columns(self, scope: Scope) -> Iterator[tuple[str, str]]:
        for item in scope.expression.expressions:
            if item.is_star:
                yield from self._starred(item, scope)
                continue
            kind = _Values(self, scope).kind(item.unalias())
            if kind is not None:
                name = item.name.lower() if is_any_window(item) else item.alias_or_name
                yield name or item.sql(dialect="spark"), kind

    def _starred(self, star: exp.Expr, scope: Scope) -> Iterator[tuple[str, str]]:
        wanted = star.table.lower() if isinstance(star, exp.Column) else ""
        for name, (_, source) in scope.selected_sources.items():
            if wanted not in ("", name.lower()):
                continue
            if isinstance(source, Scope):
                yield from self.of(source).items()
                continue
            table = self.tables.get(source.name.lower())
            for column in (table.columns if table is not None else None) or ():
                kind = _of_type(column.type)
                if kind is not None:
                    yield column.name, kind


def _of_type(text: str) -> str | None:
    """Return the kind of a type such as ``ARRAY<INT>``."""
    name = text.partition("<")[0].partition("(")[0].strip().lower()
    return next((kind for kind in _FUNCTIONS if kind == name), None)


class _Values:
    """The kinds of the expressions of one SELECT."""

    def __init__(self, nested: _Nested, scope: Scope) -> None:
        self._nested = nested
        self._scope = scope

    def kind(self, node: exp.Expr | None) -> str | None:
        """Return the kind of an expression; None for single values with a text, and where it is unknown."""
        if node is None:
            return None
        node = node.unalias().unnest()
        if isinstance(node, exp.Column):
            return self._of_column(node)
        if isinstance(node, exp.Cast):
            return _of_type(node.to.sql(dialect="spark"))
        if isinstance(node, exp.Case):
            values = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
            return next((kind for kind in map(self.kind, values) if kind is not None), None)
        if isinstance(node, exp.Filter):
            return self.kind(node.this)
        for parsed, kind in _PARSED:
            if isinstance(node, parsed):
                return kind
        name = node.name.lower() if isinstance(node, exp.Anonymous) else node.key
        if name in _FIRST:
            if isinstance(node, exp.Anonymous) and node.expressions:
                return self.kind(node.expressions[0])
            return self.kind(node.this) if isinstance(node.this, exp.Expr) else None
        return _RESULTS.get(name) if isinstance(node, exp.Anonymous) else None

    def _of_column(self, column: exp.Column) -> str | None:
        parts = [part.name.lower() for part in column.parts]
        sources = {name.lower(): source for name, (_, source) in self._scope.selected_sources.items()}
        names = [part for part in column.parts if isinstance(part, exp.Identifier)]
        path = path_of(names, self._scope, self._nested.tables)
        if path is not None and path.fields:
            return None if path.value is None else _of_type(path.value.type)
        if len(parts) > 1 and parts[0] not in sources:
            return None  # a field
        if len(parts) == 1 and parts[0] in ("window", "session_window") and self._has_window():
            return _WINDOW
        holders = [sources[parts[0]]] if len(parts) > 1 else list(sources.values())
        found = [self._in_source(source, parts[-1]) for source in holders] if len(parts) < 3 else []
        return next((kind for kind in found if kind is not None), None) if len(holders) == 1 else None

    def _has_window(self) -> bool:
        return any(is_any_window(call) for call in self._scope.expression.find_all(exp.Anonymous))

    def _in_source(self, source: exp.Expr | Scope, name: str) -> str | None:
        if isinstance(source, exp.Table):
            table = self._nested.tables.get(source.name.lower())
            column = table.column(name) if table is not None else None
            return None if column is None else _of_type(column.type)
        return self._nested.of(source).get(name) if isinstance(source, Scope) else None
