"""Queries are similar if what costs follow from is the same, whatever else differs."""

import math
from dataclasses import replace

import pytest
import yaml

from millrace_api.model.query import Query
from millrace_api.validation.loading import read_query
from millrace_operator.lifecycle.autoscaling.cost_traits import _of_sql, best_known, cost_traits
from millrace_operator.scaling.batch_time.cost_prior import KnownCosts
from millrace_operator.scaling.batch_time.costs import PRIOR
from unit.api.documents import MINIMAL, PYTHON

KAFKA = 'kafka: {bootstrapServers: "kafka:9092", topic: '
SQL = (
    MINIMAL.replace("files: {path: data/*.csv, format: csv}", f"{KAFKA}trips}}")
    .replace("schema: cell STRING, fare DOUBLE, at TIMESTAMP", "schema: cell STRING, fare DOUBLE, user STRING")
    .replace(
        "SELECT cell, count(*) AS n FROM trips GROUP BY cell",
        "SELECT cell, user, count(*) AS n, avg(fare) AS fare FROM trips GROUP BY cell, user",
    )
    .replace("console: {}", f"{KAFKA}trips-by-cell}}")
)
USUAL = tuple(map(math.log, PRIOR.values()))
KNOWN = KnownCosts(USUAL, (0.1,) * len(USUAL), plans=3, observations=12, dedicated=False)


def traits_of(text=SQL, namespace="team-a", **spec):
    document = yaml.safe_load(text)
    document["spec"] |= spec
    return cost_traits(namespace, read_query(document).spec)


def of_sql(sql, **query):
    return traits_of(query={"sql": sql, **query})


@pytest.mark.parametrize(
    "other",
    [
        SQL.replace("topic: trips", "topic: rides"),
        SQL.replace("trips", "rides"),
        SQL.replace("user", "driver"),
        SQL.replace("GROUP BY", "WHERE fare > 3 AND cell <> 'a (b, c) -- join' GROUP  by"),
        SQL.replace("name: trips-by-cell}", "name: trips-by-user}"),
        SQL + "  batchInterval: 10s\n",
        SQL + "  executors: {initial: 3, max: 9}\n",
        SQL + "  scaling: {target: 0.5}\n",
    ],
    ids=["topic", "names", "columns", "condition", "name", "interval", "bounds", "settings"],
)
def test_names_conditions_bounds_and_settings_make_no_other_traits(other):
    assert other != SQL
    assert traits_of(other) == traits_of()


def test_another_namespace_is_always_different():
    assert traits_of(namespace="team-b") != traits_of()


@pytest.mark.parametrize(
    "other",
    [
        SQL.replace("avg", "max"),
        SQL.replace("GROUP BY cell, user", "GROUP BY cell, user, fare"),
        SQL.replace("schema:", "format: csv\n      schema:"),
        SQL.replace(f"{KAFKA}trips}}", "files: {path: data, format: json}"),
        SQL.replace(f"{KAFKA}trips-by-cell}}", "console: {}"),
        SQL + "  partitioner: {algorithm: native}\n",
        SQL + "  executors: {cores: 4}\n",
        PYTHON,
    ],
    ids=["aggregate", "group by", "format", "source", "sink", "algorithm", "cores", "python"],
)
def test_what_costs_follow_from_makes_other_traits(other):
    assert other != SQL
    assert traits_of(other) != traits_of()


@pytest.mark.parametrize(
    ("sql", "widths", "joins"),
    [
        ("SELECT count(*) FROM trips", (), 0),
        ("SELECT count(*) FROM t GROUP BY window(at, '1 minute', '10 seconds'), cell HAVING min(a, 1) > 1, 2", (2,), 0),
        ("SELECT a FROM (SELECT cell AS a FROM t GROUP BY cell, user) GROUP BY a ORDER BY a, 1", (2, 1), 0),
        ("SELECT ')' FROM t GROUP BY cell -- , user\n, user /* , fare */ LIMIT 1", (2,), 0),
        ("SELECT count(*) FROM t JOIN u ON t.a = u.a LEFT JOIN v ON 'join' = v.a GROUP BY joined, a", (2,), 2),
        ("SELECT 'it''s', \"a \\\" (\" FROM t GROUP BY (a, b), f(c, (d))", (2,), 0),
        ("GROUP BY", (1,), 0),
    ],
)
def test_the_columns_of_each_group_by_and_the_joins_count(sql, widths, joins):
    assert _of_sql(Query(sql=sql))[1:] == (widths, joins)


def test_own_functions_count_by_what_they_are_and_not_by_their_names():
    sql = "SELECT cell, {}(fare) FROM trips GROUP BY cell"
    one, renamed, another = (
        of_sql(sql.format(name), aggregates={name: {"builtin": builtin}})
        for name, builtin in (("top", "TopK"), ("most", "TopK"), ("top", "Quantiles"))
    )
    assert one == renamed != another


def test_python_aggregators_are_alike_by_class_key_and_windows():
    assert traits_of(PYTHON) == traits_of(PYTHON.replace("size: 10m, slide: 1m", "size: 20m, slide: 2m"))
    assert traits_of(PYTHON) != traits_of(PYTHON.replace("slide: 1m", "slide: 2m"))
    assert traits_of(PYTHON) != traits_of(PYTHON.replace("TopRoutes", "Routes"))
    assert traits_of(PYTHON) != traits_of(PYTHON.replace("groupBy: [cell]", "groupBy: [cell, tags]"))


def test_the_best_known_query_has_run_under_the_most_plans_and_then_been_seen_most_often():
    found = {
        "new": None,
        "some": KNOWN,
        "best": replace(KNOWN, plans=5, observations=40),
        "seldom": replace(KNOWN, plans=5, observations=30),
        "often": replace(KNOWN, plans=4, observations=60),
    }
    assert best_known(found.items(), "", dedicated=False)[0] == "best"


def test_a_query_that_was_known_before_begins_with_its_own_costs():
    found = {"other": replace(KNOWN, plans=9), "own": KNOWN}
    assert best_known(found.items(), "own", dedicated=False)[0] == "own"
    assert best_known({**found, "own": replace(KNOWN, plans=1)}.items(), "own", dedicated=False)[0] == "other"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    ["a" * 60_000, "group by " * 6_000, "/* " * 20_000 + " */" * 20_000, "'" + "\\'" * 30_000 + "'", "a (" * 20_000],
    ids=["a long word", "lists", "comments", "a quote", "calls"],
)
def test_the_traits_of_a_long_text_take_no_time(text):
    _of_sql(Query.model_construct(sql=text, functions=None, aggregates=None))


@pytest.mark.parametrize(
    "costs",
    [
        None,
        replace(KNOWN, plans=2),
        replace(KNOWN, observations=11),
        replace(KNOWN, dedicated=True),
        replace(KNOWN, deviations=(74.0, *KNOWN.deviations[1:])),
        replace(KNOWN, logs=(-40.0, *KNOWN.logs[1:])),
    ],
    ids=["nothing", "two plans", "few observations", "replicas in pods", "noise", "implausible"],
)
def test_a_query_of_which_too_little_is_known_says_nothing(costs):
    assert best_known([("other", costs)], "", dedicated=False) is None
