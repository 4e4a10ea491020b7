"""The conformance suite: its files agree with the interpreter and with each other, and random cases shrink."""

import re
from dataclasses import replace

import pytest

from conformance import results
from conformance.__main__ import expected_text
from conformance.cases import ENGINES, EXPECTED, Arrival, Case, Outcome, all_queries, version
from conformance.engines.versions import version_of
from conformance.page import PAGE, page, unexplained
from conformance.random_cases import random_case, smallest
from conformance.reference import right_outcome

QUERIES = {query.name: query for query in all_queries()}


class WithoutTombstones:
    """An engine that is right but for tombstones, which it ignores."""

    name = "millrace"
    version = "none"

    def outcomes(self, work):
        for query, case in work:
            rounds = tuple(tuple(each for each in arrivals if not each.delete) for arrivals in case.rounds)
            yield case.id, right_outcome(query, replace(case, rounds=rounds))


@pytest.mark.parametrize("name", QUERIES)
def test_right_results_are_those_of_the_interpreter(name):
    assert (EXPECTED / f"{name}.yaml").read_text(encoding="utf-8") == expected_text(QUERIES[name])


def test_the_page_shows_the_results_in_the_files():
    assert PAGE.read_text(encoding="utf-8") == page(list(QUERIES.values()))


def test_each_difference_of_another_engine_has_a_reason():
    assert unexplained(list(QUERIES.values())) == []


def test_every_file_of_cases_belongs_to_a_query():
    used = {case.id.partition("/")[2] for query in QUERIES.values() for case in query.cases}
    assert len(used) > 20
    assert {file.stem for file in EXPECTED.glob("*.yaml")} == set(QUERIES)


@pytest.mark.parametrize("name", QUERIES)
def test_random_cases_follow_from_their_seed_and_have_one_right_result(name):
    cases = [random_case(QUERIES[name], seed) for seed in range(3)]
    assert cases == [random_case(QUERIES[name], seed) for seed in range(3)]
    assert len({case.rounds for case in cases}) == 3
    for case in cases:
        in_one_round = replace(case, rounds=(case.arrivals,))
        assert right_outcome(QUERIES[name], in_one_round) == right_outcome(QUERIES[name], case)
    assert any(right_outcome(QUERIES[name], random_case(QUERIES[name], seed)).rows for seed in range(20))


def test_a_case_that_differs_shrinks_to_what_the_difference_takes():
    query, engine = QUERIES["table"], WithoutTombstones()
    differing = [
        case
        for case in (random_case(query, seed) for seed in range(40))
        if not dict(engine.outcomes([(query, case)]))[case.id].has_rows_of(right_outcome(query, case))
    ]
    assert differing
    small = smallest(engine, query, differing[0])
    assert [each.delete for each in sorted(small.arrivals, key=lambda each: each.at)] == [False, True]


def test_whether_a_record_is_late_must_not_depend_on_rounds():
    query = QUERIES["tumbling-windows"]
    late = (Arrival("s", 130, "a", v=1), Arrival("s", 101, "a", v=2))
    with pytest.raises(ValueError, match="depends on the cut into rounds"):
        right_outcome(query, Case("tumbling-windows/one-round", "", (late,)))
    found = right_outcome(query, Case("tumbling-windows/two-rounds", "", (late[:1], late[1:])))
    assert found.rows == [{"k": "a", "since": 130, "n": 1, "total": 1}]


def test_a_version_has_the_newest_change_of_each_key_by_event_time():
    changelog = [(5, {"k": "a"}, {"k": "a", "v": 2}), (3, {"k": "a"}, {"k": "a", "v": 1}), (4, {"k": "b"}, None)]
    assert [version(changelog, time) for time in (2, 3, 4, 5)] == [
        [],
        [{"k": "a", "v": 1}],
        [{"k": "a", "v": 1}],
        [{"k": "a", "v": 2}],
    ]
    assert Outcome(changelog=changelog).has_versions_of(Outcome()) is None


def test_a_verdict_counts_until_its_case_or_the_engine_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    query = QUERIES["table"]
    case = query.cases[0]
    results.save("flink", [query], {case.id: results.Verdict(True)})
    assert results.load("flink", [query]) == {case.id: results.Verdict(True)}
    assert results.load("flink", [replace(query, cases=[replace(case, rounds=case.rounds[:1])])]) == {}
    monkeypatch.setattr(results, "version_of", lambda engine: "Flink SQL 9")
    assert results.load("flink", [query]) == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_version_of_an_engine_is_the_one_that_runs(engine):
    assert re.fullmatch(r"[A-Z][A-Za-z ]+ \d+\.\d+\.\d+.*", version_of(engine))
