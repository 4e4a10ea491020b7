"""Tables in PostgreSQL as sinks: servers, names, keys, and which results they take."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from builders import a_query
from millrace_api.model.postgres import PostgresSinkSpec
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query

TABLE: dict[str, Any] = {"host": "db", "database": "sales", "table": "trips", "user": "millrace"}
GROUPS = "SELECT window.start AS since, count(*) AS n FROM trips GROUP BY window(at, '1 minute')"
ROWS = "SELECT at, fare FROM trips"


def sink(**fields: Any) -> SinkSpec:
    return SinkSpec.model_validate({"postgres": TABLE | fields})


def query(sql: str, emit: str, **fields: Any) -> StreamQuery:
    document = a_query("spec", "query", value={"sql": sql}).to_document()
    document["spec"] |= {"sink": {"postgres": TABLE | fields}, "emit": emit}
    return StreamQuery.model_validate(document)


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("db", [("db", 5432)]),
        ("DB.example.org:5433", [("db.example.org", 5433)]),
        ("a,b:1, c", [("a", 5432), ("b", 1), ("c", 5432)]),
        ("[::1], [2001:db8::5]:6432", [("::1", 5432), ("2001:db8::5", 6432)]),
    ],
)
def test_servers_are_hosts_with_ports(host, addresses):
    assert list(PostgresSinkSpec.model_validate(TABLE | {"host": host}).addresses) == addresses


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", "postgresql://db"),
        ("host", "user:password@db"),
        ("host", "/var/run/postgresql"),
        ("host", "db,"),
        ("host", "::1"),
        ("table", "a.b.c"),
        ("table", '"Trips"'),
        ("table", "sales."),
        ("key", ["a.b"]),
    ],
)
def test_what_is_no_server_no_table_and_no_column_is_refused(field, value):
    with pytest.raises(ValidationError):
        PostgresSinkSpec.model_validate(TABLE | {field: value})


def test_the_same_table_is_the_same_place():
    assert sink().is_place_of(sink(host="other,DB:5432", user="another", key=["since"]))
    for other in ({"host": "db:5433"}, {"database": "more"}, {"table": "more"}):
        assert not sink().is_place_of(sink(**other))
    assert not sink().is_place_of(SinkSpec.model_validate({"files": {"path": "trips"}}))


def test_only_a_key_lets_results_replace_rows():
    assert sink(key=["since"]).replaces_rows
    assert not sink().replaces_rows


@pytest.mark.parametrize(
    ("sql", "emit", "key", "problem"),
    [
        (GROUPS, "OnUpdate", ["since"], None),
        (GROUPS, "OnUpdate", ["SINCE"], None),
        (GROUPS, "OnWindowClose", ["since"], None),
        (GROUPS, "OnWindowClose", [], None),
        (ROWS, "OnUpdate", [], None),
        (ROWS, "OnUpdate", ["at"], None),
        (
            GROUPS,
            "OnUpdate",
            [],
            "spec.sink.postgres: results change after they were emitted, and without a key they are ",
        ),
        (
            "SELECT DISTINCT fare FROM trips",
            "OnUpdate",
            [],
            "spec.sink.postgres: results change after they were emitted",
        ),
        (GROUPS, "OnWindowEnd", [], "spec.sink.postgres: results change after they were emitted"),
        (
            GROUPS,
            "OnUpdate",
            ["n"],
            "spec.sink.postgres.key: the key leaves out since, so rows of the table would collide",
        ),
        (GROUPS, "OnUpdate", ["since", "n"], 'spec.sink.postgres.key: "n" is not a grouping column'),
        (GROUPS, "OnUpdate", ["until"], 'spec.sink.postgres.key: the result has no column "until"'),
    ],
)
def test_the_key_has_to_suit_the_results(sql, emit, key, problem):
    found = [str(each) for each in check_query(query(sql, emit, **({"key": key} if key else {})))]
    assert len(found) == (problem is not None), found
    assert not problem or found[0].startswith(problem)
