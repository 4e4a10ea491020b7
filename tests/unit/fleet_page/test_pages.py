"""What the pages say, and how much of it."""

from datetime import timedelta

from millrace_operator.lifecycle.query_facts import query_facts
from millrace_operator.lifecycle.query_view import QueryView
from millrace_operator.page.access import Visible
from millrace_operator.page.fleet import FleetQueries
from millrace_operator.page.fleet_view import ROWS, FleetRequest, fleet_page, fleet_verdict
from millrace_operator.page.query_page import query_page
from millrace_support.pages.serving import asset
from millrace_support.pages.verdict import Severity
from unit.page.html_pages import ParsedPage

from .fleets import (
    FAILING,
    LATE,
    NOW,
    SUSPENDED,
    a_large_fleet,
    a_mixed_fleet,
    cache_of,
    condition,
    query,
    status,
)

ALL = Visible(everywhere=True)
AT_REST = {"epoch": 5, "algorithm": "dalton", "replicas": 2, "parallelism": 8, "executors": 0, "appliedEpoch": 5}


def rows_of(queries):
    return FleetQueries([cache_of(queries)]).rows(ALL, NOW)


def fleet(queries, **asked):
    return fleet_page(rows_of(queries), [], FleetRequest(**asked), "admin", NOW).decode()


def one(each):
    return query_page(QueryView(each), [], "admin", NOW, "live").decode()


def test_the_worst_query_comes_first_and_a_suspended_one_last():
    names = [row.name for row in rows_of(a_mixed_fleet())]
    assert names == [
        "trips-by-cell", "tips-by-hour", "orders-enriched", "returns", "orders", "fares-by-zone", "idle-cabs",
        "stock-levels",
    ]  # fmt: skip


def test_a_query_at_rest_is_well_and_says_so_on_every_page():
    resting = query(reported=status(busy=0.0, rate=0.0, executors=0) | {"plan": AT_REST})
    (row,) = rows_of([resting])
    assert (row.executors, row.finding.severity) == ("at rest", Severity.WELL)
    assert "none, at rest" in one(resting)
    facts = dict(query_facts(QueryView(resting), NOW))
    assert facts["plan"].startswith("dalton, at rest without executors, parallelism 8, 2 replicas")


def test_the_verdict_names_the_worst_query_its_reason_and_its_remedy():
    verdict = fleet_verdict(rows_of(a_mixed_fleet()))
    assert (verdict.severity, verdict.title) == (Severity.FAILURE, "3 of 8 queries need attention")
    assert verdict.reason.startswith("the worst is cabs/trips-by-cell, failing and starting again: SourceFailed")
    assert "millrace logs trips-by-cell -n cabs" in verdict.remedy


def test_a_fleet_that_is_well_says_how_many_run():
    verdict = fleet_verdict(rows_of([query(name="a"), query(name="b"), query(name="c", reported=SUSPENDED)]))
    assert (verdict.severity, verdict.title) == (Severity.WELL, "All 3 queries are well")
    assert verdict.reason == "2 running, 1 suspended"
    assert fleet_verdict(rows_of([query(reported=LATE)])).title == "1 of 1 query needs attention"


def test_a_row_has_what_millrace_top_shows():
    page = ParsedPage(fleet([query(reported=LATE)]))
    text = " ".join(page.texts["queries"].split())
    for each in ("cabs/fares", "Falling behind", "1.34", "184k", "20.0k", "3 of 3", "dalton 12/2", "3 d"):
        assert each in text
    links = [each["href"] for each in page.all("a")]
    assert "queries/cabs/fares" in links


def test_names_and_messages_of_users_are_texts():
    evil = '<script src="//evil.example"></script>'
    bad = status("Failed", conditions=[FAILING["conditions"][0] | {"message": f"{evil}\x1b[31m"}])
    for text in (fleet([query(reported=bad)], find=evil), one(query(reported=bad))):
        assert evil not in text
        assert "&lt;script" in text
        assert "\x1b" not in text
        assert [each.get("src") for each in ParsedPage(text).all("script")] in (["page.js"], ["../../page.js"])


def test_a_large_fleet_comes_in_pages_of_bounded_size():
    queries = a_large_fleet()
    first = fleet(queries)
    parsed = ParsedPage(first)
    assert len([each for each in parsed.all("a") if each["href"].startswith("queries/")]) == ROWS
    assert "1 to 100 of 1,000" in first
    assert "./?page=2" in [each["href"] for each in parsed.all("a")]
    assert parsed.all("body")[0]["data-source"] == "./"
    files = sum(len(asset(name).body) for name in ("page.css", "page.js"))
    assert len(first.encode()) + files < 200_000
    last = fleet(queries, page=99)
    assert "901 to 1,000 of 1,000" in last
    assert ParsedPage(last).all("body")[0]["data-source"] == "./?page=99"


def test_queries_are_found_by_namespace_and_name():
    queries = a_large_fleet()
    text = fleet(queries, find="TEAM-7/query-12")
    found = [each["href"] for each in ParsedPage(text).all("a") if each["href"].startswith("queries/")]
    assert found == ["queries/team-7/query-127"]
    assert "No query has elsewhere" in fleet(queries, find="elsewhere")
    assert 'action="./"' in text
    assert 'role="search"' not in fleet(a_mixed_fleet())  # a few need no search


def test_the_page_of_a_query_has_its_verdict_conditions_history_and_sql():
    page = ParsedPage(one(query(reported=LATE)))
    texts = {name: " ".join(text.split()) for name, text in page.texts.items()}
    assert texts["verdict"].startswith("!Falling behind")
    assert "Scaling is limited" in texts["verdict"]
    assert "spec.executors.max is 3" in texts["conditions"]
    assert "Scaling decided 2/8/2 -> 3/12/2, ScaleOut" in texts["messages"]
    assert texts["messages"].endswith("The query was created")
    assert "W 1.34, 20.0k records/s arrive" in texts["facts-in-full"]
    assert "GROUP BY cell" in texts["sql"]
    assert "live" in [each["href"] for each in page.all("a")]


def test_what_more_executors_cannot_help_is_said_beside_the_verdict():
    held = condition("ScalingIneffective", "True", "HotKey", "more executors cannot bring W to 0.9: one key")
    page = ParsedPage(one(query(reported=status(busy=1.34, lag=184_000, conditions=(held,)))))
    verdict = " ".join(page.texts["verdict"].split())
    assert "More executors do not help" in verdict
    assert verdict.count("ore executors cannot bring W to 0.9: one key") == 1


def test_figures_of_an_earlier_run_are_not_those_of_now():
    assert "20.0k" not in ParsedPage(one(query(reported=FAILING))).texts["figures"]


def test_a_query_without_a_status_or_a_spec_has_a_page():
    bare = query(reported={})
    del bare["spec"]
    page = ParsedPage(one(bare))
    assert "None was reported yet" in page.texts["conditions"]
    assert "sql" not in page.texts


def test_old_queries_and_odd_times_are_shown():
    odd = status(attempts=[{"time": "yesterday", "reason": "Hung"}])
    assert "yesterday" in one(query(reported=odd, created=(NOW - timedelta(days=800)).isoformat()))
