"""Queries that try to stop whoever reads them: by depth, by patterns, or by what they cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.validation.loading import read_query
from millrace_operator.kube.bounded_json import LEVELS, TOO_DEEP, shallow
from millrace_operator.lifecycle.chains.chains import Chains
from unit.resources.cases import SMALLEST

KAFKA = {"bootstrapServers": "kafka:9092"}


def query(**spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SMALLEST)
    document["spec"] |= spec
    return document


def reading(pattern: str) -> dict[str, Any]:
    """A query that reads topics by a pattern."""
    return query(sources={"trips": {"kafka": KAFKA | {"topicPattern": pattern}, "schema": "cell STRING"}})


def counting(expression: str) -> dict[str, Any]:
    return query(query={"sql": f"SELECT cell, {expression} AS n FROM trips GROUP BY cell"})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


DEEP = {
    "brackets in SQL": counting("(" * 5000 + "count(*)" + ")" * 5000),
    "brackets that are not closed": counting("(" * 20_000),
    "signs in SQL": counting("- " * 10_000 + "1"),
    "calls in SQL": counting("abs(" * 5000 + "1" + ")" * 5000),
    "a schema": query(
        sources={"trips": {"kafka": KAFKA | {"topic": "t"}, "schema": "cell " + "ARRAY<" * 5000 + "INT" + ">" * 5000}}
    ),
    "a pod template": query(driver={"podTemplate": {"spec": nested(500)}}),
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_depth_is_reported_as_a_problem_of_the_query(deep: dict[str, Any]) -> None:
    with pytest.raises(MillraceError, match=r"nested (too|more than 64 levels) deep|within 16 other nested types"):
        read_query(deep)


def doubling(levels: int) -> str:
    """Stars over two stars each, so that the last SELECT has 2 ** levels of them."""
    doubled = "".join(f", c{i} AS (SELECT * FROM c{i - 1} x, c{i - 1} y)" for i in range(1, levels))
    return f"WITH c0 AS (SELECT * FROM trips){doubled} SELECT cell FROM c{levels - 1}"


COSTLY = {
    "calls of a type": (f"SELECT {'INT(' * 40}cell{')' * 40} FROM trips", "takes too long to parse"),
    "calls of struct": (f"SELECT {'STRUCT(' * 40}cell{')' * 40} FROM trips", "takes too long to parse"),
    "a sum": (f"SELECT {'+'.join(['cell'] * 12_000)} FROM trips", "12002 levels deep"),
    "alternatives": (
        f"SELECT cell FROM trips WHERE {' OR '.join(['cell'] * 500)}",
        r"is 50\d levels deep.*the limit is 400",
    ),
    "subqueries": (
        f"SELECT {','.join(['(SELECT cell FROM trips)'] * 2000)} FROM trips",
        "2001 SELECTs; the limit is 100",
    ),
    "unions": (" UNION ALL ".join(["SELECT cell FROM trips"] * 101), "101 SELECTs; the limit is 100"),
    "joins": ("SELECT 1 FROM trips " + "JOIN trips USING (cell) " * 101, "101 joins; the limit is 100"),
    "stars over stars": (doubling(90), "too large with each CTE in the place of its name"),
}


@pytest.mark.parametrize(("sql", "message"), COSTLY.values(), ids=COSTLY)
def test_sql_whose_check_would_take_hours_is_reported(sql: str, message: str) -> None:
    """Without limits, a worker of the operator would not come back from the first two and the last within days."""
    with pytest.raises(MillraceError, match=message):
        read_query(query(query={"sql": sql}, emit="OnUpdate"))


def test_sql_of_the_largest_shape_is_checked() -> None:
    parts = [f"SELECT {','.join(f'cell AS c{i}' for i in range(50))} FROM trips WHERE cell IS NOT NULL"] * 100
    read_query(query(query={"sql": " UNION ALL ".join(parts)}, emit="OnUpdate"))
    alternatives = " OR ".join(["cell IS NULL"] * 390)
    read_query(query(query={"sql": f"SELECT cell FROM trips WHERE {alternatives}"}, emit="OnUpdate"))


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose"])
def test_columns_that_pass_through_many_subqueries_are_each_followed_once(emit: str) -> None:
    """Looked up again for each column of each level, they would take ten times as long with each level."""
    columns = ", ".join(f"c{i}" for i in range(10))
    sql = f"SELECT {', '.join(f'at AS c{i}' for i in range(10))} FROM trips"
    for level in range(50):
        sql = f"SELECT {columns} FROM ({sql}) AS t{level}"
    if emit == "OnWindowClose":
        sql = f"SELECT window.start AS since, count(*) AS n FROM ({sql}) AS t GROUP BY window(c0, '1 hour')"
    source = {"kafka": KAFKA | {"topic": "trips"}, "schema": "at TIMESTAMP, cell STRING"}
    source["watermark"] = {"column": "at", "delay": "10s"}
    sink = {"files": {"path": "out", "format": "csv"}}
    read_query(query(sources={"trips": source}, query={"sql": sql}, emit=emit, sink=sink))


@pytest.mark.parametrize(
    "pattern", ["a{99999999999999999999}", "(" * 20_000 + ")" * 20_000], ids=["repeat", "brackets"]
)
def test_a_pattern_that_python_cannot_compile_is_reported(pattern: str) -> None:
    with pytest.raises(MillraceError, match="topicPattern is not a regular expression"):
        read_query(reading(pattern))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*a){60}b", "(?=(a+)+b)a"])
def test_a_pattern_that_backtracks_does_not_hold_the_operator(pattern: str) -> None:
    """With ``re``, each of them would take longer than this test may."""
    writer = query(sink={"kafka": KAFKA | {"topic": "a" * 200}})
    chains = Chains()
    for name, document in (("writer", writer), ("reader", reading(pattern))):
        document["metadata"] |= {"name": name, "namespace": "mallory", "uid": name, "generation": 1}
        assert chains.seen(document) == set()
    assert chains.upstream_of("mallory", "reader").links == ()


def test_a_pattern_that_matches_still_makes_a_chain() -> None:
    chains = Chains()
    for name, document in (("writer", query()), ("reader", reading("trips-by-[a-z]+"))):
        document["metadata"] |= {"name": name, "namespace": "mallory", "uid": name, "generation": 1}
        chains.seen(document)
    assert [link.writer for link in chains.upstream_of("mallory", "reader").links] == ["writer"]


def test_many_unknown_names_are_not_all_compared_with_all_known_ones() -> None:
    columns = ", ".join(f"column_{number} INT" for number in range(400))
    unknown = ", ".join(f"colum_{number}" for number in range(2000))
    source = {"trips": {"kafka": KAFKA | {"topic": "trips"}, "schema": columns}}
    with pytest.raises(MillraceError) as caught:
        read_query(query(sources=source, query={"sql": f"SELECT {unknown} FROM trips"}))
    assert len([each for each in caught.value.problems if "there is no column" in each.message]) == 20


def test_what_is_nested_too_deeply_is_cut_off_and_the_rest_is_kept() -> None:
    text = '{"a": ' + "[" * 5000 + '"]}\\"[{"' + "]" * 5000 + ', "b": {"c": ["}", 1]}}'
    found = json.loads(shallow(text.encode()))
    assert found["b"] == {"c": ["}", 1]}
    cut = found["a"]
    for _ in range(LEVELS - 1):
        (cut,) = cut
    assert cut == TOO_DEEP
