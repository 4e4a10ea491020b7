"""Checks for clauses of SQL that no query can have, whatever it reads, each with what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millrace_api.errors import Problem
from millrace_api.sql.dialect import Keywords, StreamingSql, problem_at, start_of, to_sql


def clause_problems(text: str, query: exp.Query) -> Iterator[Problem]:
    """Yield the clauses that no query has; ``stream_checks`` has those that streams lack."""
    keywords = Keywords(text)
    for node in query.walk():
        if isinstance(node, exp.Qualify) and not _has_window(node):
            start = keywords.before(node, TokenType.QUALIFY)
            yield problem_at(text, start, "QUALIFY filters by OVER, which it does not have", "write WHERE")
        elif isinstance(node, exp.Qualify) and (aggregate := node.find(exp.AggFunc)) is not None:
            message = f"Spark has no aggregates in QUALIFY, and it has {to_sql(aggregate)}"
            hint = "give the aggregate an alias in the SELECT list, and write that"
            yield problem_at(text, keywords.before(node, TokenType.QUALIFY), message, hint)
        elif isinstance(node, exp.Fetch):
            yield problem_at(text, keywords.before(node, TokenType.FETCH), "Spark has no FETCH", "write LIMIT")
        elif isinstance(node, exp.Distinct) and node.args.get("on") is not None:
            hint = "write GROUP BY, with any_value(...) for the other columns"
            yield problem_at(text, keywords.before(node, TokenType.DISTINCT), "Spark has no DISTINCT ON", hint)
        elif isinstance(node, exp.Filter) and isinstance(node.this, exp.AnonymousAggFunc):
            hint = "give it NULL for the other records: write CASE WHEN ... THEN x END for its argument x"
            message = f"FILTER is not possible with the aggregator {node.this.name}"
            yield problem_at(text, node.this.meta.get("start"), message, hint)
        elif isinstance(node, exp.Join) and node.method and node.kind in ("SEMI", "ANTI"):
            message = f"Spark has no {node.method} {node.side} {node.kind} JOIN".replace("  ", " ")
            yield problem_at(text, start_of(node.this), message, "name the columns: write USING (...)")
        elif isinstance(node, exp.SetOperation) and node.args.get("by_name"):
            message = f"Spark has no {node.key.upper()} BY NAME"
            yield problem_at(text, start_of(node.expression), message, "list the columns of both sides in one order")
        elif isinstance(node, exp.Placeholder):
            name = f":{node.this}" if node.this else "?"
            yield Problem(f"the SQL has the parameter {name}, which has no value", "write the value itself")
        elif isinstance(node, exp.Table) and node.args.get("version") is not None:
            message = f"the source {node.name} is read AS OF a version or a time, which is not possible"
            hint = "leave AS OF out: a join with a table takes its version at the event time of each record"
            yield problem_at(text, start_of(node.this), message, hint)


def _has_window(qualify: exp.Qualify) -> bool:
    """Return whether QUALIFY, or an item of its SELECT, has an OVER clause."""
    items = qualify.parent.expressions if isinstance(qualify.parent, exp.Select) else []
    return any(node.find(exp.Window) is not None for node in (qualify, *items))


def comment_problems(text: str) -> Iterator[Problem]:
    """Yield comments that end in a backslash: to Spark, the next line belongs to them, and it reads another query."""
    if "\\\n" not in text:
        return
    if any(comment.endswith("\\") for token in StreamingSql().tokenize(text) for comment in token.comments):
        hint = "remove the backslash: to Spark, the next line is a part of the comment"
        yield Problem("a comment of the SQL ends in a backslash", hint)
