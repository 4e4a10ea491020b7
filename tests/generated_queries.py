"""Queries made at random from a grammar, many of which cannot run: ``millrace validate`` and a run agree on each.

The grammar knows nothing of what can run. It has sources of every kind (streams, tables, static tables), joins of all
kinds with conditions of all kinds, USING and NATURAL, groups with windows and sessions, HAVING, DISTINCT, set operations,
WITH and subqueries; emit strategies, sinks with their options, further outputs, algorithms and placements. Most names
exist and most types fit, so that what a query is made of decides.
"""

from __future__ import annotations

import random
import re
from typing import Any

COLUMNS = "at TIMESTAMP, k STRING, n INT, v DOUBLE, b BOOLEAN"
_KAFKA = {"bootstrapServers": "127.0.0.1:1"}
_RANGE = "{r}.at BETWEEN {l}.at AND {l}.at + INTERVAL 10 SECONDS"


def document(seed: int) -> dict[str, Any]:
    """Return the StreamQuery with this number."""
    return _Maker(random.Random(seed)).document()


class _Maker:
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._one_of = draw.choice
        self._sources = {
            name: self._source(name) for name in draw.sample(["s", "t", "p", "q", "r"], draw.choice((1, 1, 2, 2, 3)))
        }
        if self._sources.keys() == {"r"}:  # something has to stream
            self._sources["s"] = self._source("s")
        self._ctes: list[str] = []
        self._named: list[str] = []

    def _rarely(self, share: float = 0.1) -> bool:
        return self._draw.random() < share

    def _source(self, name: str) -> dict[str, Any]:
        if name == "r":
            static = {"keys": self._one_of((["k"], ["k", "n"])), "static": True}
            return {"files": {"path": "in/r", "format": "json"}, "schema": COLUMNS, "table": static}
        source: dict[str, Any] = {"kafka": {**_KAFKA, "topic": f"in-{name}"}, "schema": COLUMNS}
        table = name in "pq"
        if table or not self._rarely(0.15):
            source["watermark"] = {"column": "at", "delay": "10s"}
        if table:
            source["table"] = {"keys": self._one_of((["k"], ["k"], ["k", "n"]))}
        return source

    def document(self) -> dict[str, Any]:
        sql = self._query()
        self._named = [*re.findall(r"AS (\w+)", sql), "k"]
        waits = "window(" in sql or self._rarely()
        emit = self._one_of(("OnUpdate", "OnUpdate", "OnWindowClose", "OnWindowEnd") if waits else ("OnUpdate",))
        spec: dict[str, Any] = {
            "sources": self._sources,
            "query": {"sql": sql},
            "sink": self._sink("out"),
            "emit": emit,
            "partitioner": {"algorithm": self._one_of(("hash", "pkg", "native", "auto"))},
        }
        if self._rarely(0.08):
            emits = self._one_of(("OnUpdate", "OnWindowEnd", "OnWindowClose"))
            spec["additionalOutputs"] = {"other": {"sink": self._sink("other"), "emit": emits}}
        if self._rarely(0.05):
            spec["partitioner"]["placement"] = "Dedicated"
        return {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": "generated"},
            "spec": spec,
        }

    def _sink(self, name: str) -> dict[str, Any]:
        kind = self._one_of(("console", "files", "kafka", "delta", "table", "table", "table"))
        keys = [self._one_of(self._named) for _ in range(self._one_of((1, 1, 2)))]
        match kind:
            case "console":
                return {"console": {}}
            case "files":
                return {"files": {"path": f"{name}/results", "format": self._one_of(("csv", "json", "parquet"))}}
            case "delta":
                return {"delta": {"path": f"{name}/delta", **({"key": keys} if self._rarely(0.7) else {})}}
        sink: dict[str, Any] = {**_KAFKA, "topic": name}
        if self._rarely(0.3):
            sink["key"] = keys
        if self._rarely(0.06):
            sink["transaction"] = "Partition"
        if kind == "table" and self._rarely(0.06):
            sink["history"] = {"topic": f"{name}-history", "retention": "1h"}
        return {kind: sink}

    def _query(self) -> str:
        clause = ""
        if self._rarely(0.08):
            bodies = []
            for number in range(self._one_of((1, 1, 2))):
                bodies.append(f"w{number} AS ({self._rows()})")
                self._ctes.append(f"w{number}")
            clause = f"WITH {', '.join(bodies)} "
        if self._rarely(0.06):
            return f"{clause}{self._union()}"
        return f"{clause}{self._select()}"

    def _union(self) -> str:
        kind = self._one_of(("UNION ALL", "UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT",
                             "EXCEPT ALL", "INTERSECT ALL"))  # fmt: skip
        sides = self._one_of((2, 2, 3))
        if self._rarely(0.15):
            return f" {kind} ".join(self._select(1) for _ in range(sides))
        return f" {kind} ".join(self._rows() for _ in range(sides))

    def _rows(self) -> str:
        """Return a SELECT with the columns that all sources have."""
        name = self._one_of([*self._sources, *self._ctes])
        other = self._one_of([*self._sources])
        where = f" WHERE {self._condition(['a'])}" if self._rarely(0.25) else ""
        every = "a.at, a.k, a.n, a.v, a.b"
        return self._one_of(
            (
                f"SELECT * FROM {name} a{where}",
                f"SELECT {every} FROM {name} a{where}",
                f"SELECT DISTINCT {every} FROM {name} a{where}",
                f"SELECT a.at, upper(a.k) AS k, a.n + 1 AS n, a.v, a.b FROM {name} a{where}",
                f"SELECT {every} FROM {name} a JOIN {other} b ON a.k = b.k{self._range('a', 'b')}{where}",
                f"SELECT {every} FROM {name} a LEFT JOIN {other} b ON a.k = b.k{self._range('a', 'b')}{where}",
                f"SELECT max(at) AS at, k, max(n) AS n, sum(v) AS v, any_value(b) AS b FROM {name} a{where} GROUP BY k",
                f"SELECT window.start AS at, k, count(*) AS n, sum(v) AS v, true AS b FROM {name} a{where} "
                "GROUP BY window(at, '1 minute'), k",
                f"SELECT window, window.start AS at, k, count(*) AS n, sum(v) AS v, true AS b FROM {name} a{where} "
                "GROUP BY window(at, '1 minute'), k",
                f"SELECT k, sum(n) AS n, avg(v) AS v, true AS b, timestamp'2020-01-01' AS at FROM {name} a{where} GROUP BY k",
                f"SELECT at, k, count(*) AS n, sum(v) AS v, true AS b FROM {name} a{where} GROUP BY at, k",
            )
        )

    def _range(self, left: str, right: str) -> str:
        return f" AND {_RANGE.format(l=left, r=right)}" if self._rarely(0.7) else ""

    def _select(self, depth: int = 0) -> str:
        tables, clause = self._from(depth)
        groups = self._groups(tables) if self._rarely(0.55) else None
        items = self._items(tables, groups)
        where = f" WHERE {self._condition(tables)}" if self._rarely(0.2) else ""
        group = ""
        if groups:
            group = f" GROUP BY {', '.join(groups)}" if not self._rarely(0.03) else f" GROUP BY CUBE({groups[-1]})"
        having = f" HAVING {self._aggregate(tables)} > 1" if groups is not None and self._rarely(0.1) else ""
        distinct = "DISTINCT " if self._rarely(0.05) else ""
        if self._rarely(0.08):
            return self._top_rows(tables, items, f"{clause}{where}{group}{having}", distinct)
        tail = self._one_of((" ORDER BY 1", " LIMIT 3", " LIMIT 3 OFFSET 1")) if self._rarely(0.05) else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {clause}{where}{group}{having}{tail}"

    def _top_rows(self, tables: list[str], items: list[str], rest: str, distinct: str) -> str:
        """Return a SELECT with ``row_number()``, which mostly has a largest number."""
        partition = self._one_of((f"PARTITION BY {self._column(tables)} ", f"PARTITION BY {self._column(tables)} ", "",
                                  f"PARTITION BY window({self._column(tables, ['at'])}, '1 minute') ",
                                  "PARTITION BY window " if "window(" in rest else ""))  # fmt: skip
        by = self._one_of((self._column(tables), f"{self._column(tables)} DESC", self._column(tables, ["at"]) + " DESC",
                           self._aggregate(tables) if "GROUP BY" in rest else self._scalar(tables)))  # fmt: skip
        order = f"ORDER BY {by}" if not self._rarely(0.05) else ""
        function = "row_number" if not self._rarely(0.05) else self._one_of(("rank", "dense_rank"))
        number = f"{function}() OVER ({partition}{order})"
        bound = self._one_of(("= 1", "= 1", "<= 3", "< 3", "BETWEEN 2 AND 4", "IN (1, 2)", "> 2", "<= 1000", "<= n"))
        match self._one_of(("qualify", "qualify", "alias", "around", "around")):
            case "qualify":
                more = self._one_of(("", "", f" AND {self._condition(tables)}"))
                return f"SELECT {distinct}{', '.join(items)} FROM {rest} QUALIFY {number} {bound}{more}"
            case "alias":
                return f"SELECT {distinct}{', '.join([*items, f'{number} AS r'])} FROM {rest} QUALIFY r {bound}"
        inner = f"SELECT {', '.join([*items, f'{number} AS r'])} FROM {rest}"
        return f"SELECT {distinct}* FROM ({inner}) ranked WHERE {self._one_of(('r', 'ranked.r'))} {bound}"

    def _from(self, depth: int) -> tuple[list[str], str]:
        """Return the aliases, and the FROM clause."""
        names = list(self._sources)
        count = self._one_of((1, 1, 1, 2, 2, 3)) if len(names) > 1 else self._one_of((1, 1, 1, 1, 2))
        read = names[:count] if count <= len(names) else [*names, names[0]]
        aliases = [f"x{number}" for number in range(len(read))]
        parts = [self._table(read[0], aliases[0], depth)]
        for number in range(1, len(read)):
            parts.append(self._join(read[number], aliases[:number], aliases[number], depth))
        return aliases, " ".join(parts)

    def _table(self, name: str, alias: str, depth: int) -> str:
        if self._ctes and self._rarely(0.7):
            return f"{self._one_of(self._ctes)} {alias}"
        if depth == 0 and self._rarely(0.15):
            return f"({self._union() if self._rarely(0.12) else self._rows()}) {alias}"
        return f"{name} {alias}" if not self._rarely(0.02) else f"{name} TABLESAMPLE (3 ROWS) {alias}"

    def _join(self, name: str, before: list[str], alias: str, depth: int) -> str:
        kind = self._one_of(
            ("JOIN", "JOIN", "JOIN", "INNER JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN",
             "LEFT ANTI JOIN", "CROSS JOIN", "FULL OUTER JOIN")
        )  # fmt: skip
        left, table = self._one_of(before), self._table(name, alias, depth)
        equal = self._one_of((f"{left}.k = {alias}.k", f"{left}.k = {alias}.k", f"{left}.n = {alias}.n",
                              f"{left}.k = {alias}.k AND {left}.n = {alias}.n", f"upper({left}.k) = {alias}.k",
                              f"{left}.k <=> {alias}.k", f"{left}.n < {alias}.n"))  # fmt: skip
        time = _RANGE.format(l=left, r=alias)
        on = self._one_of((f" ON {equal}", f" ON {equal} AND {time}", f" ON {equal} AND {time}", " USING (k)", f" USING (k, {self._one_of('nb')})",
                           f" ON {equal} AND {alias}.at >= {left}.at", f" ON {equal} AND {left}.v > {alias}.v",
                           f" ON {equal} AND {left}.n > 1 AND {time}", f" ON {left}.at = {alias}.at",
                           f" ON {equal} AND {alias}.b", f" ON {equal} AND {time.replace('10 SECONDS', '1 MINUTE -5 SECONDS')}",
                              f" ON {equal} AND {time.replace('SECONDS', 'S')}" if self._rarely(0.2) else f" ON {equal} AND {time}"))  # fmt: skip
        if kind == "CROSS JOIN":
            on = ""
        if self._rarely(0.03):
            return f"NATURAL {kind.replace('CROSS ', '')} {table}"
        return f"{kind} {table}{on}"

    def _column(self, tables: list[str], names: str = "knvb") -> str:
        name = self._one_of([*names]) if not self._rarely(0.1) else "at"
        return f"{self._one_of(tables)}.{name}" if len(tables) > 1 and not self._rarely(0.02) else name

    def _aggregate(self, tables: list[str]) -> str:
        function = self._one_of(("count", "sum", "sum", "min", "max", "avg", "stddev", "approx_count_distinct", "first",
                                 "collect_list", "max_by", "count_if", "bool_or"))  # fmt: skip
        if function == "count":
            call = self._one_of(("count(*)", "count(*)", f"count({self._column(tables)})",
                                 f"count(DISTINCT {self._column(tables)})"))  # fmt: skip
        elif function == "max_by":
            call = f"max_by({self._column(tables)}, {self._column(tables, 'nv')})"
        elif function in ("count_if", "bool_or"):
            call = f"{function}({self._one_of((self._column(tables, 'b'), self._condition(tables)))})"
        elif function in ("sum", "avg", "stddev"):
            call = (
                f"{function}({self._column(tables, 'nvnvnvkb') if self._rarely(0.3) else self._column(tables, 'nv')})"
            )
        else:
            call = f"{function}({self._column(tables)})"
        if function in ("sum", "avg", "stddev") and self._rarely(0.15):
            call = call.replace("(", "(DISTINCT ", 1)
        if self._rarely(0.05):
            call = f"sum({call})"
        if self._rarely(0.05):
            call += f" FILTER (WHERE {self._condition(tables)})"
        return call

    def _scalar(self, tables: list[str]) -> str:
        column = self._column(tables)
        return self._one_of((column, column, column, f"upper({column})", f"{column} + 1", f"{column} || 'x'",
                             f"CASE WHEN {self._condition(tables)} THEN {column} END", f"coalesce({column}, 0)",
                             f"CAST({column} AS STRING)", f"{column} * {self._column(tables, 'nv')}",
                             f"{column} IS NULL", f"named_struct('a', {column})", f"array({column})",
                             f"date_trunc('hour', {self._column(tables, ['at'])})",
                             f"{self._column(tables, 'n')} / 2", f"row_number() OVER (PARTITION BY {column} ORDER BY 1)"
                             if self._rarely(0.15) else column))  # fmt: skip

    def _condition(self, tables: list[str]) -> str:
        one, other = self._column(tables), self._column(tables)
        return self._one_of(
            (f"{self._column(tables, 'n')} > 1", f"{self._column(tables, 'k')} = 'a'", f"{one} IS NOT NULL",
             f"{self._column(tables, 'b')}", f"{one} = {other}" if self._rarely(0.4) else f"{one} = {one}",
             f"{self._column(tables, 'k')} LIKE 'a%'", f"{self._column(tables, 'nv')} IN (1, 2)",
             f"{one}" if self._rarely(0.3) else "b IS NULL" if len(tables) == 1 else "true",
             f"NOT {self._column(tables, 'b')}", f"{self._column(tables, 'n')} BETWEEN 1 AND 5",
             self._subquery(tables[0]) if self._rarely(0.4) else "true")
        )  # fmt: skip

    def _subquery(self, outer: str) -> str:
        name = self._one_of([*self._sources, *self._ctes])
        more = (
            f" AND {_RANGE.format(l=outer, r='y')}" if self._rarely(0.4) else " AND y.n > 1" if self._rarely() else ""
        )
        return self._one_of(
            (f"{outer}.k IN (SELECT k FROM {name})", f"{outer}.k NOT IN (SELECT k FROM {name})",
             f"{outer}.k IN (SELECT y.k FROM {name} y WHERE y.n = {outer}.n{more})",
             f"EXISTS (SELECT 1 FROM {name} y WHERE y.k = {outer}.k{more})",
             f"EXISTS (SELECT * FROM {name} y WHERE y.k = {outer}.k{more})",
             f"NOT EXISTS (SELECT 1 FROM {name} y WHERE y.k = {outer}.k{more})",
             f"{outer}.n > (SELECT max(n) FROM {name})",
             f"{outer}.n = (SELECT max(y.n) FROM {name} y WHERE y.k = {outer}.k)")
        )  # fmt: skip

    def _groups(self, tables: list[str]) -> list[str]:
        groups = []
        if self._rarely(0.55):
            at = self._column(tables, ["at"])
            if self._rarely(0.05):
                at = self._one_of((f"{at} + INTERVAL 1 HOUR", f"CAST({at} AS DATE)", f"date_trunc('hour', {at})"))
            length = self._one_of(
                ("'1 minute'", "'1 minute'", "'1 hour 30 minutes'", "'1 hour', '10 minutes'", "'1 WEEK'")
            )
            if self._rarely(0.06):
                length = self._one_of(("'1 dya'", "'10 minutes', '1 hour'", "INTERVAL 1 HOUR", "'1 month'"))
            groups.append(f"window({at}, {length})" if not self._rarely(0.08) else f"session_window({at}, '5 minutes')")
        groups += [self._scalar(tables) if self._rarely(0.2) else self._column(tables, "knb")
                   for _ in range(self._one_of((0, 1, 1, 2)))]  # fmt: skip
        return groups

    def _items(self, tables: list[str], groups: list[str] | None) -> list[str]:
        if groups is None:
            if self._rarely(0.2):
                return ["*"] if not self._rarely(0.2) else [f"{tables[0]}.*", "1 AS one"]
            items = [self._scalar(tables) for _ in range(self._one_of((1, 2, 3)))]
            return [f"{item} AS c{number}" if not self._rarely(0.15) else item for number, item in enumerate(items)]
        items = []
        for group in groups:
            if group.startswith(("window", "session_window")):
                name = group.partition("(")[0]
                items.append(self._one_of((f"{name}.start AS since", f"{name}.start AS since", name, f"{group} AS w")))
            elif not self._rarely(0.15):
                items.append(f"{group} AS g{len(items)}" if not group.isidentifier() else group)
        if self._rarely(0.06):
            items.append(self._column(tables))
        for number in range(self._one_of((0, 1, 1, 1, 2))):
            name = self._one_of((f"m{number}", f"m{number}", f"m{number}", "m0", "n"))
            items.append(f"{self._aggregate(tables)} AS {name}")
        return items or ["count(*) AS c"]
