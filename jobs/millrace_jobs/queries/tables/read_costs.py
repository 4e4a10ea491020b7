"""What it costs to compute a relation once for both sides of a join, or once for each, and the choice between them.

The model is that of chapter 3 of Sax's dissertation, which section 5.2.4 asks for to decide between a table and its
changelog. An operator takes, for each row that it reads (equation 3.8),

    c_p = c_fetch / b_in + c_cpu + s * c_emit / b_out

seconds of one core, divided by the tasks that share the work (definition 27). Here an operator
fetches a batch of a bucket: it reads and rewrites the slots of its keys, however few rows it has for each. Stages run
one after the other, so that their seconds add up. A state costs what it takes to write the slots that a batch changes.

The figures were measured without Spark, on one core of a busy machine, with BIGINT columns, 100,000 rows held and
batches of 100 to 50,000 records (2026-11-29). What a query will read is not known when it starts, so rates are assumed,
and shares of rows that pass a filter are those of Selinger et al. 1979, table 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from sqlglot import exp

from millrace_api.sql.dialect import parse_expression
from millrace_jobs.queries.tables.operators.interface import BUCKETS
from millrace_jobs.queries.tables.operators.state import SLOTS
from millrace_jobs.queries.tables.relations import (
    Enriched,
    Grouping,
    Join,
    KeptRecords,
    Relation,
    Repeated,
    Scan,
    Selection,
    Static,
    TopRows,
    Union,
    Upserted,
    below,
)
from millrace_jobs.queries.tables.shared_reads import CommonInput

BATCH = 10_000
"""Assumed number of records in a batch."""

HELD = 100_000
"""Assumed number of rows in the state of a stage."""

READ = 0.5e-6
"""Seconds to read and decode a record, as in ``selection.costs.sql_prior``."""

ROW = 0.2e-6
"""Seconds to send a row through a shuffle: to cut it into blocks, pack and unpack these. It is c_emit / b_out."""

COLUMN = 0.02e-6
"""Seconds to send a further column of a row."""

WRITE = 10e-9
"""Seconds to write a byte of state (100 MB/s)."""

COLUMN_BYTES, ROW_BYTES = 16, 24
"""Bytes of a column, and of the period and the weight of a row."""


@dataclass(frozen=True)
class OperatorCost:
    """``fetch``: seconds for each bucket of a batch (c_fetch); ``row``: seconds for each row that is read (c_cpu)."""

    fetch: float
    row: float


UPSERTS = OperatorCost(50e-3, 2e-6)
GROUPS = OperatorCost(8e-3, 0.5e-6)
JOINS = OperatorCost(100e-3, 4e-6)


@dataclass(frozen=True)
class RelationCost:
    """What a relation takes for each record of its sources: seconds of its tasks, rows that it makes, and its state.

    ``state`` is in bytes, for one row in each of its stages.
    """

    seconds: float
    rows: float
    state: int = 0


@dataclass(frozen=True)
class ReadCosts:
    """Seconds for each record, and bytes of state for a row, of a relation that is computed once or for each reader."""

    once: RelationCost
    twice: RelationCost

    @property
    def prefers_once(self) -> bool:
        """Whether it takes no longer to compute the relation once."""
        return self.once.seconds <= self.twice.seconds


def read_costs(found: CommonInput, partitions: int) -> ReadCosts:
    """Return the costs of both ways.

    Args:
        found: what both sides of a join read.
        partitions: number of state partitions, which bounds the tasks of a stage.
    """
    tasks = min(partitions, BUCKETS)
    one = _work(found.relation, tasks, 1 / sum(isinstance(each, Scan) for each in below(found.relation)))
    seconds = one.seconds + WRITE * one.state * HELD * min(1, BATCH / (BUCKETS * SLOTS)) / BATCH / tasks
    passed = _seconds_to_pass(found, one.rows, tasks)
    return ReadCosts(
        RelationCost(seconds + passed, one.rows, one.state), RelationCost(2 * seconds, 2 * one.rows, 2 * one.state)
    )


def _seconds_to_pass(found: CommonInput, rows: float, tasks: int) -> float:
    """Return the seconds in which rows go through the stage of the grouping in front of one reader."""
    if found.through is None:
        return 0.0
    (selections,) = (each for side, each in found.above.items() if side != found.grouped)
    passing = rows * prod(share_of(each.where) for each in selections)
    columns = next((len(each.items) for each in reversed(selections) if each.items), _columns(found.relation))
    return passing * (ROW + COLUMN * columns) / (tasks if found.through.keys else 1)


def _work(relation: Relation, tasks: int, records: float) -> RelationCost:
    """Return the work of a relation of which each source gives so many records."""
    match relation:
        case Scan():
            return RelationCost(records * READ / tasks, records)
        case Static():
            return RelationCost(0, 0)
        case Selection():
            made = _work(relation.input, tasks, records)
            return RelationCost(made.seconds, made.rows * share_of(relation.where), made.state)
        case Enriched() | KeptRecords():
            return _work(relation.input, tasks, records)
        case Union():
            parts = [_work(each, tasks, records) for each in relation.inputs]
            return RelationCost(
                sum(each.seconds for each in parts), sum(each.rows for each in parts), sum(each.state for each in parts)
            )
        case Upserted():
            return _staged(UPSERTS, _work(relation.input, tasks, records), 2, tasks, _columns(relation))
        case Join():  # each row has one partner
            left, right = (_work(each, tasks, records) for each in (relation.left, relation.right))
            both = RelationCost(left.seconds + right.seconds, left.rows + right.rows, left.state + right.state)
            return _staged(JOINS, both, 1, tasks, _columns(relation))
        case Grouping():
            rows = _work(relation.input, tasks, records)
            window = relation.window
            copies = window.size / window.slide if window is not None and not relation.session else 1
            rows = RelationCost(rows.seconds, rows.rows * copies, rows.state)
            own = tasks if relation.keys else 1
            return _staged(GROUPS, rows, 1 if relation.final else 2, own, _columns(relation))
        case TopRows() | Repeated():
            return _work(relation.groups, tasks, records)


def _staged(cost: OperatorCost, read: RelationCost, selectivity: float, tasks: int, columns: int) -> RelationCost:
    """Return the work of a stage and what is below it, by equation 3.8."""
    made = selectivity * read.rows
    fetched = cost.fetch * BUCKETS / BATCH
    seconds = (fetched + read.rows * (ROW + COLUMN * columns + cost.row) + made * ROW) / tasks
    return RelationCost(read.seconds + seconds, made, read.state + ROW_BYTES + COLUMN_BYTES * columns)


def _columns(relation: Relation) -> int:
    """Return the number of columns of a relation's rows."""
    match relation:
        case Scan() | Static():
            return len(relation.columns)
        case Selection() if relation.items:
            return len(relation.items)
        case Grouping():
            return len(relation.keys) + len(relation.parts)
        case TopRows():
            return len(relation.groups.keys) + len(relation.columns) + 1
        case Repeated():
            return len(relation.groups.keys)
        case Join():
            return _columns(relation.left) + (0 if relation.type in ("semi", "anti") else _columns(relation.right))
        case Union():
            return _columns(relation.inputs[0])
        case Enriched():
            return _columns(relation.input) + _columns(relation.table)
        case _:
            return _columns(relation.input)


def share_of(where: str) -> float:
    """Return the assumed share of rows that pass a condition, without which all do."""
    return _share(parse_expression(where)) if where else 1.0


def _share(condition: exp.Expr) -> float:
    match condition:
        case exp.Paren():
            return _share(condition.this)
        case exp.And():
            return _share(condition.left) * _share(condition.right)
        case exp.Or():
            return 1 - prod(1 - share for share in _shares(condition))
        case exp.Not():
            return 1 - _share(condition.this)
        case exp.EQ() | exp.Is():
            return 1 / 10
        case exp.NEQ():
            return 1 - 1 / 10
        case exp.Between():
            return 1 / 4
        case exp.In():
            return min(1 / 2, len(condition.expressions) / 10)
        case _:
            return 1 / 3


def _shares(condition: exp.Or) -> Iterator[float]:
    yield from (_share(each) for each in (condition.left, condition.right))
