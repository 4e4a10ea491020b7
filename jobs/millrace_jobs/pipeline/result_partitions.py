"""Whether the results of a query leave in the partitions of its state, so that tasks can write them by partition.

A batch that is repeated after a crash has the same results in each partition of the state. After a shuffle behind the
state, it need not: Spark may divide the repeated batch among another number of tasks.
"""

from __future__ import annotations

from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import parse_query
from millrace_api.sql.groups import group_expressions, is_aggregate, is_any_window, is_window, select_aliases
from millrace_jobs.pipeline.aggregation import Native, has_groups
from millrace_jobs.pipeline.compile import Routed
from millrace_jobs.pipeline.table_relations import TableQuery

Execution = Routed | TableQuery | Native

_CLAUSES = {"expressions", "from_", "from", "where", "group", "having"}
"""Clauses of a SELECT behind whose groups Spark does not shuffle."""


def result_partitions(execution: Execution, state: int) -> int | None:
    """Return in how many partitions of a state, which has ``state``, results leave; None if it is not in those.

    One group over all records is in one partition.
    """
    if isinstance(execution, Routed):
        query = execution.aggregation
        return 1 if query is not None and not query.keys and query.window is None else state
    if isinstance(execution, TableQuery):
        return None if execution.groups is None else state
    return _of_native(execution.sql, state) if isinstance(execution, Native) else None


def require_partitions(execution: Execution, spec: Spec) -> None:
    """Check that tasks can write the results by partition, if an output asks for it.

    Raises:
        MillraceError: nothing fixes the results of each partition.
    """
    if result_partitions(execution, 1) is not None:
        return
    for field, output in spec.outputs.items():
        if output.sink.by_partition:
            place = f"{field}.sink.{output.sink.kind}.transaction"
            raise MillraceError(Problem(_why(execution), "write transaction: Batch", field=place))


def _why(execution: Execution) -> str:
    if isinstance(execution, Native) and not has_groups(execution.sql):
        return "the query keeps no state, so it has no partitions of one to write by"
    return "the results may be shuffled after the state, and a repeated batch would divide them among other partitions"


def _of_native(sql: str, state: int) -> int | None:
    """Return the number of partitions for one SELECT with groups of a source's records; None for all else."""
    query = parse_query(sql)
    if not isinstance(query, exp.Select) or {name for name, value in query.args.items() if value} - _CLAUSES:
        return None
    source = query.args.get("from_") or query.args.get("from")
    table = source.this if source else None
    if not isinstance(table, exp.Table) or any(v for name, v in table.args.items() if name not in ("this", "alias")):
        return None
    if query.find(exp.Window) or any(inner is not query for inner in query.find_all(exp.Query)):
        return None
    if query.args.get("group") is None:
        return 1 if any(is_aggregate(call) for call in query.find_all(exp.Func)) else None
    keys = group_expressions(query, select_aliases(query, ())) or ()
    sessions = [key for key in keys if is_any_window(key) and not is_window(key)]
    return state if len(keys) > len(sessions) else None
