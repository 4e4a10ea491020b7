"""Checks for clauses of SQL that a query cannot have, each with what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millrace_api.errors import Problem
from millrace_api.sql.dialect import Keywords, problem_at, start_of, to_sql


def clause_problems(text: str, query: exp.Query) -> Iterator[Problem]:
    """Yield the clauses of a query that neither Spark's streams nor the operators on tables have."""
    keywords = Keywords(text)
    for node in query.walk():
        if isinstance(node, exp.Pivot) and not node.unpivot:
            start = keywords.before(node, TokenType.PIVOT)
            hint = "write a column for each value, such as sum(n) FILTER (WHERE k = 'a') AS a, and GROUP BY the others"
            yield problem_at(text, start, "streams have no PIVOT", hint)
        elif isinstance(node, exp.Qualify) and node.find(exp.Window) is None:
            start = keywords.before(node, TokenType.QUALIFY)
            yield problem_at(text, start, "QUALIFY filters by OVER, which it does not have", "write WHERE")
        elif isinstance(node, exp.Fetch):
            yield problem_at(text, keywords.before(node, TokenType.FETCH), "Spark has no FETCH", "write LIMIT")
        elif isinstance(node, exp.Placeholder):
            name = f":{node.this}" if node.this else "?"
            yield Problem(f"the SQL has the parameter {name}, and no one gives it a value", "write the value itself")
        elif isinstance(node, exp.Table):
            yield from _of_table(text, node)


def _of_table(text: str, table: exp.Table) -> Iterator[Problem]:
    start = start_of(table.this)
    if table.args.get("version") is not None:
        yield problem_at(text, start, f"the source {table.name} has no earlier versions", f"write FROM {table.name}")
    if table.alias_column_names:
        alias, columns = table.alias, ", ".join(f"... AS {name}" for name in table.alias_column_names)
        message = f"the alias {alias}({', '.join(table.alias_column_names)}) names columns of {to_sql(table.this)} anew"
        yield problem_at(text, start, message, f"write FROM (SELECT {columns} FROM {table.name}) AS {alias}")
