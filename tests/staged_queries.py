"""Queries by operators on tables without Spark: their stages as Millrace builds them, and DuckDB for the SQL between them.

``RelationBuilder`` makes what it would make of Spark's DataFrames; here these are the rows of one batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructType
from sqlglot import exp, parse_one

from change_tables import MemoryStore, Row, comparable
from dual_streaming.streams import Record
from dual_streaming.tables import EvolvingTable
from millrace_api.sql.dialect import StreamingSql
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.changes import CHANGE
from millrace_jobs.queries.dry_compile import UNKNOWN, DeclaredTypes
from millrace_jobs.queries.tables.build import RelationBuilder
from millrace_jobs.queries.tables.operators.interface import BUCKETS, TableOperator
from millrace_jobs.queries.tables.scopes import InputTraits, internals_in
from millrace_jobs.queries.tables.stages import Fork
from millrace_jobs.queries.tables.table_query import TableQuery
from millrace_jobs.queries.tables.translation import translate
from millrace_jobs.sources.base import CHANGED

MOMENT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("at", MOMENT), ("k", pa.string()), ("n", pa.int64())])
"""The columns of all sources; a table's key is ``k``."""

Event = tuple[int, str, Any, Any]
"""What arrives: its time in microseconds, its source, its key and its value; None deletes a row of a table."""

Contents = Mapping[str, Sequence[tuple[Any, ...]]]
"""Rows of sources: times in microseconds, keys and values."""

END = 1 << 40
"""A watermark after all events."""


_NAMED = re.compile(r"(?!true\b)([A-Za-z_]\w*)(?: AS (\w+))?")


class Rows:
    """The rows of one batch, with the methods of a DataFrame that builders call."""

    def __init__(self, table: pa.Table, connection: duckdb.DuckDBPyConnection) -> None:
        self.table, self.connection = table, connection

    @property
    def columns(self) -> list[str]:
        return list(self.table.schema.names)

    @property
    def schema(self) -> StructType:
        return from_arrow_schema(self.table.schema)

    def selectExpr(self, *texts: str) -> Rows:  # noqa: N802 - the name in PySpark
        named = [_NAMED.fullmatch(text) for text in texts]
        if all(named):  # DuckDB would take most of the time of a test
            columns = [self.table.column(each[1]) for each in named if each]
            return Rows(pa.table(columns, names=[each[2] or each[1] for each in named if each]), self.connection)
        return self._query(f"SELECT {', '.join(texts)} FROM given")

    def where(self, text: str) -> Rows:
        return self._query(f"SELECT * FROM given WHERE {text}")

    def unionByName(self, other: Rows) -> Rows:  # noqa: N802 - as above
        return Rows(pa.concat_tables([self.table, other.table.select(self.columns)]), self.connection)

    def _query(self, sql: str) -> Rows:
        self.connection.register("given", self.table)
        made = self.connection.sql(_for_duckdb(sql)).to_arrow_table()
        times = [each.with_type(MOMENT) if pa.types.is_timestamp(each.type) else each for each in made.schema]
        return Rows(made.cast(pa.schema(times)), self.connection)


class StagedQuery:
    """A query, the state of its stages, and the sum of the changes of its result.

    Args:
        sql: its SQL.
        sources: the names of its sources, and whether each is a table.
        final: whether only results that can no longer change are wanted.
        versions: whether the result has all versions.
        once: whether what both sides of a join read is computed once.
        columns: the columns of all sources; the key of tables is ``k``.
        time: the column with the event time.
    """

    def __init__(
        self,
        sql: str,
        sources: Mapping[str, bool],
        *,
        final: bool = False,
        versions: bool = False,
        once: bool = False,
        columns: pa.Schema = COLUMNS,
        time: str = "at",
    ) -> None:
        types = {column.name: column.dataType for column in from_arrow_schema(columns)}
        self._sources = sources
        self.query: TableQuery = translate(
            parsed_query(sql).written_out,
            {name: InputTraits(types, time, ("k",) if is_table else ()) for name, is_table in sources.items()},
            _types_of,
            partitions=1, final_joins=final, final_groups=final,
        )  # fmt: skip
        if once:
            self.query = replace(self.query, once=tuple(each.name for each in self.query.common))
        self._versions = versions
        self.connection = _connection()
        self._stores: dict[int, MemoryStore] = {}
        self._wakes: dict[int, int | None] = {}
        self._kept: dict[int, int] = {}
        self._position = 0
        self.rows: Counter[Row] = Counter()
        self.late = 0

    def batch(self, events: Iterable[Event], watermark: int) -> list[tuple[Row, int]]:
        """Run a batch, add up its changes, and return them: rows with their periods, and weights."""
        events = list(events)
        records = {source: Rows(self._records(source, events), self.connection) for source in self._sources}
        run = partial(self._run, watermark)
        builder = _Builder(self.query, records.__getitem__, None, True, False, run=run)  # type: ignore[arg-type]
        needed = frozenset(name for item in self.query.items for name in internals_in(item))
        changes: Any = builder.rows(self.query.relation, needed, versions=self._versions)
        items = (f"{item} AS i{place}" for place, item in enumerate(self.query.items))
        columns = changes.selectExpr(*items, *CHANGE.names).table.columns
        made = [
            (comparable(row), weight) for *row, weight in zip(*(column.to_pylist() for column in columns), strict=True)
        ]
        for row, weight in made:
            self.rows[row] += weight
        self.rows = Counter({row: weight for row, weight in self.rows.items() if weight})
        assert all(weight > 0 for weight in self.rows.values()), "a row was removed that was not there"
        return made

    def abandoned(self) -> StagedQuery:
        """Return a copy for a batch that is computed and not committed; this query does not see what it does."""
        other = copy(self)
        other._stores = {number: deepcopy(store) for number, store in self._stores.items()}
        other._wakes, other._kept, other.rows = self._wakes.copy(), self._kept.copy(), self.rows.copy()
        return other

    def end(self) -> None:
        """Close the input: the watermark passes everything."""
        self.batch([], END)

    def version(self, time: int) -> Counter[Row]:
        """Return the rows of the result at a time."""
        found: Counter[Row] = Counter()
        for row, weight in self.rows.items():
            if row[-2] <= time < row[-1]:
                found[row[:-2]] += weight
        return found

    @property
    def results(self) -> Counter[Row]:
        """All rows of the result, without their periods: those of a stream, or of a table's latest version."""
        found: Counter[Row] = Counter()
        for row, weight in self.rows.items():
            found[row[:-2]] += weight
        return found

    @property
    def stages(self) -> int:
        """The number of stages that have had input."""
        return len(self._kept)

    @property
    def kept(self) -> int:
        """The number of rows in the state of all stages."""
        return sum(self._kept.values())

    @property
    def stored_bytes(self) -> int:
        """The size of the state of all stages."""
        return sum(len(table) for store in self._stores.values() for table in store.tables.values())

    def _records(self, source: str, events: Sequence[Event]) -> pa.Table:
        rows = [(at, key, value) for at, name, key, value in events if name == source]
        table = _table(rows)
        if not self._sources[source]:
            return table
        first, self._position = self._position, self._position + len(rows)
        changed = [[value is None for *_, value in rows], [False] * len(rows), list(range(first, first + len(rows)))]
        arrays = [pa.array(values, kind) for values, kind in zip(changed, CHANGED.types, strict=True)]
        return pa.Table.from_arrays([*table.columns, *arrays], schema=pa.schema([*COLUMNS, *CHANGED]))

    def _run(self, watermark: int, number: int, operator: TableOperator, inputs: Sequence[pa.Table]) -> pa.Table:
        """Run a stage, if it has input or its time has come."""
        store, wake = self._stores.setdefault(number, MemoryStore()), self._wakes.get(number)
        made = [operator.output.empty_table()]
        if any(each.num_rows for each in inputs) or (wake is not None and wake <= watermark):
            given = [
                rows.select(schema.names).cast(schema) for rows, schema in zip(inputs, operator.inputs, strict=True)
            ]
            outcome = operator.process(store, given, watermark)
            made += list(outcome.changes)
            self.late += outcome.late
            self._wakes[number], self._kept[number] = outcome.wake, outcome.kept
        return pa.concat_tables(made)


@dataclass(frozen=True)
class _Builder(RelationBuilder):
    """Builds the rows of one batch; ``run`` runs a stage by its number."""

    run: Callable[[int, TableOperator, Sequence[pa.Table]], pa.Table] = field(kw_only=True)

    def stage(self, operator: TableOperator, inputs: Any, keys: Sequence[Sequence[str]], buckets: int = BUCKETS) -> Any:
        if isinstance(inputs, Fork):
            alone = [own.columns for own in inputs.inputs]
            kept = [inputs.rows.where(own.keeps) for own in inputs.inputs]
            named = [[f"{column} AS {name}" for name, column in columns.items()] for columns in alone]
            inputs = [rows.selectExpr(*texts) for rows, texts in zip(kept, named, strict=True)]
        made = self.run(next(self._numbers), operator, [rows.table for rows in inputs])
        return Rows(made, inputs[0].connection)


def _types_of(columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
    """Return the types of expressions over columns of these types: Spark's where they are known, or else DuckDB's."""
    known = DeclaredTypes({}).of(columns, expressions)
    schema = pa.schema([(name, to_arrow_type(kind, timezone="UTC")) for name, kind in columns.items()])
    rows = Rows(schema.empty_table(), _connection())

    def in_duckdb(text: str) -> DataType:
        (kind,) = rows.selectExpr(f"{text} AS e").table.schema.types
        return from_arrow_type(kind)

    return [in_duckdb(text) if kind == UNKNOWN else kind for text, kind in zip(expressions, known, strict=True)]


@lru_cache(maxsize=1000)
def _for_duckdb(sql: str) -> str:
    return parse_one(sql, read=StreamingSql).transform(_with_struct).sql(dialect="duckdb")


def _with_struct(node: exp.Expr) -> exp.Expr:
    """Write ``named_struct('a', x)`` as DuckDB's ``{'a': x}``, and windows that do not slide as such structs."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "window":
        time, length = node.expressions[0].sql(), int(node.expressions[1].name.split()[0])
        start = f"(epoch_us({time}) - epoch_us({time}) % {length})"
        ends = f"{{'start': make_timestamp({start}), 'end': make_timestamp({start} + {length})}}"
        return parse_one(ends, read="duckdb")
    if not (isinstance(node, exp.Anonymous) and node.name.lower() == "named_struct"):
        return node
    pairs = zip(node.expressions[::2], node.expressions[1::2], strict=True)
    return exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(key.name), expression=value.transform(_with_struct))
            for key, value in pairs
        ]
    )


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
    connection.execute("CREATE MACRO unix_micros(t) AS epoch_us(t)")
    connection.execute("CREATE MACRO try_divide(a, b) AS CASE WHEN b <> 0 THEN a / b END")
    return connection


def _table(rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return rows of time, key and value."""
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    types = (pa.int64(), *COLUMNS.types[1:])
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=COLUMNS.names).cast(COLUMNS)


def duckdb_rows(sql: str, contents: Contents) -> Counter[Row]:
    """Return the rows of a query over these contents of its sources."""
    connection = _connection()
    for name, rows in contents.items():
        connection.register(name, _table(rows))
    found = connection.sql(_for_duckdb(sql)).to_arrow_table()
    return Counter(comparable(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True))


TABLES = {"p": True, "q": True}
STREAMS = {"s": False, "r": False}
GRACE = 6

_VALUES = st.integers(0, 2) | st.none()


def events(sources: Iterable[str], keys: str = "ab") -> st.SearchStrategy[Event]:
    """Events of these sources; few keys and values, so that rows meet, and a delete of a table's row now and then."""
    return st.tuples(st.integers(1, 20), st.sampled_from(sorted(sources)), st.sampled_from(keys), _VALUES).filter(
        lambda event: event[1] in TABLES or event[3] is not None
    )


def versions_of(seen: Sequence[Event], sources: Mapping[str, bool]) -> dict[int, Contents]:
    """The contents of sources at every event time."""
    return {time: contents_at(seen, sources, time) for time in sorted({event[0] for event in seen})}


def contents_at(seen: Sequence[Event], sources: Mapping[str, bool], time: int) -> Contents:
    """The rows of tables at a time, by the reference interpreter, and the records of streams until then."""
    contents: dict[str, list[tuple[Any, ...]]] = {}
    for name, is_table in sources.items():
        own = [event for event in seen if event[1] == name]
        table = EvolvingTable(Record(at, key, value) for at, _, key, value in own)
        rows = [(record.t, record.k, record.v) for record in table.at(time).values()]
        contents[name] = rows if is_table else [(at, key, value) for at, _, key, value in own if at <= time]
    return contents


def query_of_records(sql: str, batches: Sequence[tuple[Sequence[Event], int]]) -> tuple[StagedQuery, Counter[Row]]:
    """Run a query of the stream ``s`` and the tables; also return DuckDB's rows of each record beside its own tables."""
    query, seen = StagedQuery(sql, {**TABLES, "s": False}), list[Event]()
    for arrived, watermark in batches:
        seen += arrived
        query.batch(arrived, watermark)
    expected: Counter[Row] = Counter()
    for at, _, key, value in (event for event in seen if event[1] == "s"):
        expected += duckdb_rows(sql, {**contents_at(seen, TABLES, at), "s": [(at, key, value)]})
    return query, expected
