"""Which queries have their results in the partitions of their state, as far as that follows from their SQL."""

from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError
from millrace_api.model.sinks import KafkaSinkSpec, SinkSpec, TransactionScope
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.results import require_partitions
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.state_layout import continue_from
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import Enriched, Grouping, Join, Scan, Selection, Static
from millrace_jobs.queries.tables.table_query import TableQuery

SCAN = Scan("trips", (), "at", ())
JOIN = Join(SCAN, SCAN, "inner", {"left": ("a",), "right": ("b",)}, None, final=False, lag={"left": 0, "right": 0})
GROUPS = Grouping(JOIN, (), None, None, (), final=False, lag=None)


@pytest.mark.parametrize(
    ("sql", "partitions"),
    [
        ("SELECT cell, collect_set(fare) FROM trips WHERE fare > 0 GROUP BY cell HAVING count(*) > 1", 8),
        ("SELECT t.cell, count(*) FROM trips AS t GROUP BY 1", 8),
        ("SELECT count(*) FROM trips GROUP BY window(at, '1 minute')", 8),
        ("SELECT cell, count(*) FROM trips GROUP BY session_window(at, '1 minute'), cell", 8),
        ("SELECT count(*) FROM trips GROUP BY session_window(at, '1 minute')", None),
        ("SELECT stddev(fare) FROM trips", 1),
        ("SELECT fare FROM trips WHERE fare > 0", None),
        ("SELECT DISTINCT cell FROM trips", None),
        ("SELECT DISTINCT count(*) FROM trips GROUP BY cell", None),
        ("SELECT cell, count(*) AS n FROM trips GROUP BY cell ORDER BY n", None),
        ("SELECT cell, count(*) AS n FROM trips GROUP BY cell LIMIT 3", None),
        ("SELECT /*+ REPARTITION(3) */ cell, count(*) AS n FROM trips GROUP BY cell", None),
        ("SELECT n FROM (SELECT cell, count(*) AS n FROM trips GROUP BY cell)", None),
        ("WITH c AS (SELECT cell, count(*) AS n FROM trips GROUP BY cell) SELECT n FROM c", None),
        (
            "SELECT cell, count(*) FROM trips GROUP BY cell UNION ALL SELECT cell, count(*) FROM trips GROUP BY cell",
            None,
        ),
        ("SELECT cell, count(*) FROM trips JOIN cells USING (cell) GROUP BY cell", None),
        ("SELECT cell, count(*) FROM trips, cells GROUP BY cell", None),
        ("SELECT cell, count(*) FROM trips GROUP BY cell HAVING count(*) > (SELECT 1)", None),
        ("SELECT cell, sum(count(*)) OVER () FROM trips GROUP BY cell", None),
        ("SELECT count(*) FROM trips TABLESAMPLE (10 PERCENT) GROUP BY cell", None),
    ],
)
def test_of_spark_s_own_plan_only_one_aggregation_over_a_source_is_known(sql, partitions):
    assert Native(parsed_query(sql), "").result_partitions(8) == partitions


@pytest.mark.parametrize(
    ("relation", "partitions"),
    [
        (GROUPS, 8),
        (Selection(GROUPS, "n > 1"), 8),
        (JOIN, None),
        (Selection(JOIN, ""), None),
        (Enriched(GROUPS, Static("cells", ()), "a = b", "inner"), None),
        (Selection(Enriched(GROUPS, Static("cells", ()), "a = b", "inner"), ""), None),
    ],
)
def test_of_operators_on_tables_only_groups_leave_in_the_partitions_of_their_state(relation, partitions):
    assert tables(relation).result_partitions(8) == partitions


@pytest.mark.parametrize(
    ("keys", "window", "partitions"), [((), None, 1), (("k0",), None, 8), ((), SimpleNamespace(), 8)]
)
def test_routed_results_leave_in_the_partitions_of_the_state(keys, window, partitions):
    query = Routed("trips", window, None, None, SimpleNamespace(keys=keys, window=window))
    assert query.result_partitions(8) == partitions


def test_a_join_that_spark_s_own_plan_has_begun_is_refused_like_others():
    sql = "SELECT count(*) AS n FROM trips JOIN cells ON a = b"
    compiled = CompiledQuery(tables(GROUPS), StructType(), aggregates=True)
    require_partitions(compiled.execution, by_partition())
    continued, note = continue_from(compiled, sql, {"text": sql})
    with pytest.raises(MillraceError) as refused:
        require_partitions(continued.execution, by_partition())
    assert note.startswith("the query runs natively, though it can be routed: the state in its checkpoint was built by")
    assert str(refused.value) == (
        "spec.sink.kafka.transaction: the results may be shuffled after the state, and a repeated batch would divide them "
        "among other partitions; write transaction: Batch"
    )


def tables(relation):
    return TableQuery(
        "", relation, (), Contents.TABLE, waits=False, longest=0, labels={}, columns=(), partitions=8, key=None
    )


def by_partition():
    kafka = KafkaSinkSpec(bootstrap_servers="kafka:9092", topic="out", transaction=TransactionScope.PARTITION)
    return SimpleNamespace(outputs={"spec": SimpleNamespace(sink=SinkSpec(kafka=kafka))})
