"""What ``millrace status``, ``explain`` and ``top`` show, by golden texts of 80 columns."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from millrace_operator.commands import explain_screen, status_screen
from millrace_operator.commands.status_screen import queries_table
from millrace_operator.lifecycle.query_facts import age, count, one_line
from millrace_operator.lifecycle.query_view import QueryView
from millrace_operator.scaling.decision.decision import Decision, Reason
from millrace_operator.scaling.serial_time import SerialCause, SerialTime

from .queries import BUSY, NOW, as_written, assert_golden, condition, decision, drawn, query


def test_status_says_everything_on_one_screen():
    annotations = {"millrace.io/paused-scale-in": "true", "millrace.io/paused": "false"}
    view = QueryView(query(BUSY, generation=5, annotations=annotations))
    assert_golden("status-busy", drawn(status_screen.screen(view, NOW)))


def test_status_shows_a_query_that_no_operator_has_seen():
    assert_golden("status-new", drawn(status_screen.screen(QueryView(query(generation=1)), NOW)))


def test_status_shows_replicas_in_pods_of_their_own():
    plan, pods = BUSY["plan"] | {"placement": "Dedicated"}, {"replicas": 2, "ready": 1, "restarts": 3}
    view = QueryView(query({**BUSY, "plan": plan, "partitioner": pods}))
    assert_golden("status-replicas", drawn(status_screen.screen(view, NOW)))


def test_status_shows_the_queries_before_this_one():
    upstream = [
        {"name": "orders", "source": "lines", "reads": "topic orders", "phase": "Running"},
        {"name": "prices", "source": "tariff", "reads": "files in /data/prices"},
    ]
    waits = condition("UpstreamReady", "False", "UpstreamNotRunning", "prices (files in /data/prices) is new")
    chain = {"order": "shop -> orders -> trips-by-cell", "depth": 2, "upstream": upstream}
    view = QueryView(query({**BUSY, "conditions": [waits], "chain": chain}))
    assert_golden("status-chain", drawn(status_screen.screen(view, NOW)))


def test_status_shows_connections_and_which_of_them_the_query_does_not_follow_yet():
    seen = {"generation": 2, "brokers": "kafka:9093"}
    connections = [{"name": "orders", **seen}, {"name": "trips", **seen, "update": "Waiting"}]
    text = drawn(status_screen.screen(QueryView(query({**BUSY, "connections": connections})), NOW))
    found = [" ".join(line.split()) for line in text.splitlines() if "Kafka at" in line]
    assert found == [
        "connection orders, generation 2: Kafka at kafka:9093",
        "connection trips, generation 2: Kafka at kafka:9093; waits to follow it",
    ]


def test_status_of_another_version_is_said_to_be_so():
    view = QueryView(query({"phase": "Dreaming"}))
    assert not view.is_readable
    text = drawn(status_screen.screen(view, NOW))
    assert "another version of Millrace wrote it" in text
    assert "yet" not in text
    assert "pending" not in text


def test_a_condition_is_out_of_order_by_its_meaning():
    conditions = [
        condition("Ready", "False", "Suspended"),
        condition("Progressing", "True", "Applying"),
        condition("MetricsAvailable", "True", "Fresh"),
        condition("ScalingLimited", "False", "Room"),
        condition("ScalingIneffective", "False", "ExecutorsHelp"),
        condition("ScalingActive", "False", "Off"),
        condition("Degraded", "False", "Whole"),
    ]
    found = QueryView(query({"conditions": conditions})).abnormal_conditions
    assert [each.type for each in found] == ["Progressing", "ScalingActive"]


def test_explain_shows_all_parts_of_a_decision():
    assert_golden("explain-scale-out", drawn(explain_screen.screen("trips-by-cell", decision(), NOW)))


def test_what_more_executors_cannot_help_is_in_every_view():
    serial = SerialTime(2.0, 1.2, True, True, SerialCause.HOT_KEY, 1.9, 0.4, NOW.timestamp())
    shown = drawn(explain_screen.screen("trips-by-cell", replace(decision(), serial=serial), NOW))
    text = "serial part 2.40 s of a batch do not become shorter with more executors, W 1.20"
    assert text in " ".join(shown.split())
    held = condition("ScalingIneffective", "True", "HotKey", "more executors cannot bring W to 0.9")
    view = QueryView(query(BUSY | {"conditions": [*BUSY["conditions"], held]}))
    assert "ScalingIneffective  yes, HotKey: more executors cannot" in drawn(status_screen.screen(view, NOW))
    assert "HotKey; 5" in drawn(status_screen.queries_table([view], NOW, everywhere=False))


def test_status_shows_what_a_query_takes():
    load = BUSY["load"] | {"cores": 6.0, "coreHoursPerMillionRecords": 0.0325}
    shown = drawn(status_screen.screen(QueryView(query(BUSY | {"load": load})), NOW))
    assert "6 cores, 0.0325 core-hours per million records" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("arrival", "growth", "words"),
    [
        (432.5, 20.62, "432 records/s, up from 20 at the last change; 0"),
        (432.5, 4324.0, "432 records/s, up from 0.1 at the last change; 0"),
        (900.0, 1.0, "900 records/s, +100% since the last change; 0"),
        (0.0, -1.0, "0 records/s, -100% since the last change; 0"),
    ],
)
def test_growth_from_a_tiny_rate_is_a_comparison_and_no_share(arrival, growth, words):
    inputs = replace(decision().inputs, arrival=arrival, growth=growth, lag=0.0)
    shown = drawn(explain_screen.screen("trips-by-cell", replace(decision(), inputs=inputs), NOW))
    assert f"arrival {words} records wait" in " ".join(shown.split())


def test_explain_shows_a_decision_without_an_answer():
    bare = Decision(NOW.timestamp(), decision().before, decision().before, Reason.NO_ANSWER, detail="Stale: it is old")
    assert_golden("explain-no-answer", drawn(explain_screen.screen("trips-by-cell", bare, NOW)))


def test_a_decision_comes_back_as_it_was_written_down():
    bare = Decision(NOW.timestamp(), decision().before, decision().plan, Reason.OFF)
    for each in (decision(), bare, replace(decision(), reason=decision().guard)):
        assert TypeAdapter(Decision).validate_json(as_written(each)) == each


def test_every_part_of_a_decision_has_its_place():
    """A new field is to be shown too."""
    names = {field.name for field in fields(Decision)}
    shown = {"time", "before", "plan", "reason", "guard", "detail", "zone", "drivers", "inputs"}
    assert names == shown | {
        "present",
        "chosen",
        "ruled_out",
        "outcome",
        "serial",
        "dedicated",
        "placement",
        "sentence",
    }


@pytest.mark.parametrize(("dedicated", "where"), [(True, "pods"), (False, "tasks")])
def test_explain_shows_where_replicas_move_and_what_was_weighed(dedicated, where):
    moved = replace(decision(), dedicated=dedicated, placement="Inline needs 4 cores")
    shown = drawn(explain_screen.screen("trips-by-cell", moved, NOW))
    assert f", replicas in {where}\n" in shown
    assert re.search(r"^placement +Inline needs 4 cores$", shown, re.MULTILINE)


def test_top_has_the_busiest_first():
    idle = {**BUSY, "load": {"utilization": 0.1, "inputRate": 12.0, "lag": 0}}
    queries = [
        query(name="new"),
        query(idle, name="idle"),
        query({**BUSY, "lastScaling": None, "driver": None}, name="a-query-with-a-rather-long-name"),
        query({"phase": "Suspended"}, name="asleep"),
    ]
    table = queries_table(map(QueryView, queries), NOW, everywhere=True)
    assert_golden("top", drawn(table))
    lines = drawn(table, width=160).splitlines()[3:]
    assert [line.split()[0] for line in lines] == [
        "streams/a-query-with-a-rather-long-name",
        "streams/idle",
        "streams/asleep",
        "streams/new",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"),
        (0, "0"),
        (9_999, "9,999"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (4.56e6, "4.56M"),
    ],
)
def test_counts_are_shortened_by_their_size(number, text):
    assert count(number) == text


@given(st.floats(0, 1e15))
def test_a_count_is_never_long(number):
    assert len(count(number)) <= 7


@pytest.mark.parametrize(
    ("seconds", "text"), [(12, "12 s"), (-5, "0 s"), (300, "5 min"), (7200, "2 h"), (172800, "2 d")]
)
def test_ages_are_shown_in_their_largest_unit(seconds, text):
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == text


def test_what_is_no_time_has_no_age():
    assert [age(time, NOW) for time in (None, "yesterday", "2026-01-31T11:00:00")] == ["-", "-", "-"]


@given(st.text())
def test_no_text_can_steer_a_terminal(text):
    assert one_line(text).isprintable()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", one_line(text))
